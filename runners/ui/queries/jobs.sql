-- Jobs: whether they are finished, who drives them, and how old the last evidence of that driver is.
SELECT s.job, s.mode, s.created_at, s.finished_at, s.ranges, s.open_ranges, s.low_watermark,
       j.is_drained, j.version, d.session_pid IS NOT NULL AS is_driven, d.driver, d.since AS driven_since,
       n.written_at AS evidence_at, n.phase, clock_timestamp() AS now
FROM dataflow.job_status s
JOIN dataflow.jobs j ON j.name = s.job
LEFT JOIN dataflow.job_drivers d ON d.job = s.job
LEFT JOIN dataflow.snapshot_status n ON n.job = s.job
ORDER BY s.job
