-- How far the stages of unfinished jobs are: as their driver counts it, and where it has written nothing as committed.
SELECT r.job, r.computation, min(r.watermark) AS committed, bool_and(r.is_finished) AS is_finished,
       (max(n.document #>> ARRAY['stages', r.computation, 'output_us']))::bigint AS output_us,
       (max(n.document #>> ARRAY['stages', r.computation, 'records_per_s']))::float8 AS records_per_s,
       clock_timestamp() AS now
FROM dataflow.range_status r
JOIN dataflow.jobs j ON j.name = r.job AND j.finished_at IS NULL
LEFT JOIN dataflow.snapshot_status n ON n.job = r.job
GROUP BY r.job, r.computation
ORDER BY r.job, r.computation
