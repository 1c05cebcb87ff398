-- Unfinished jobs: whether somebody drives them, and what their driver knew last.
SELECT j.job_id, j.name AS job, d.session_pid IS NOT NULL AS is_driven, n.written_at,
       n.document::text AS document, clock_timestamp() AS now
FROM dataflow.jobs j
LEFT JOIN dataflow.job_drivers d ON d.job = j.name
LEFT JOIN dataflow.snapshot_status n ON n.job = j.name
WHERE j.finished_at IS NULL
ORDER BY j.name
LIMIT %(limit)s
