-- Why workers of a job have ended, and wait.
SELECT kind, place, count, first_at, last_at, split_part(reason, E'\n', 1) AS headline
FROM dataflow.readable_troubles
WHERE job = %(job)s
ORDER BY last_at DESC
LIMIT 50
