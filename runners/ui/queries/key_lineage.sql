-- What is recorded about a key in all transforms that have keys: the newest thousand entries, newest first.
SELECT l.lineage_id, l.version, l.kind, l.transform, l.key, l.key_hash, l.window_start_us, l.window_end_us, l.sign,
       l.count, l.pane_index, l.timing, l.accumulation, l.watermark_us, l.now_us, l.reason, l.origin, l.elements
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.lineage l ON l.job_id = j.job_id AND l.transform = c.name
WHERE j.name = %(job)s AND l.kind IN ('input', 'pane', 'output') AND l.key_hash = ANY(%(hashes)s::bigint[])
ORDER BY l.lineage_id DESC
LIMIT 1000
