-- Dead letters: records that user code failed on however often it was tried; the newest first.
SELECT recorded_at, stage, error, tries, "timestamp", contents
FROM dataflow.readable_dead_letters
WHERE job = %(job)s
ORDER BY recorded_at DESC
LIMIT 100
