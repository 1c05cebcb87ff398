-- What the driver of a job knew last: stages with their input and output, ranges, workers.
SELECT n.document::text AS document, n.taken_at, n.written_at, clock_timestamp() AS now
FROM dataflow.snapshot_status n
WHERE n.job = %(job)s
