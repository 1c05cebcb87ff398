-- What has happened to a job, who did it and why; the newest first.
SELECT at, kind, actor, who, subject, reason
FROM dataflow.readable_events
WHERE job = %(job)s
ORDER BY at DESC
LIMIT 200
