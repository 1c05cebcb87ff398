-- Records that came after the state of their window was gone; the newest first.
SELECT recorded_at, transform, key, window_start, window_end, watermark, count, contents
FROM dataflow.readable_late_records
WHERE job = %(job)s
ORDER BY recorded_at DESC
LIMIT 100
