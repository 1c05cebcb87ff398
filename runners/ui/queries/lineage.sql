-- What is recorded about one key of a transform, or of a table, oldest first.
SELECT l.lineage_id, l.version, l.kind, l.transform, l.key, l.key_hash, l.window_start_us, l.window_end_us, l.sign,
       l.count, l.pane_index, l.timing, l.accumulation, l.watermark_us, l.now_us, l.reason, l.origin, l.elements
FROM dataflow.jobs j JOIN dataflow.lineage l USING (job_id)
WHERE j.name = %(job)s AND l.kind = %(kind)s AND l.transform = %(transform)s
  AND l.key_hash = ANY(%(hashes)s::bigint[])
ORDER BY l.lineage_id
