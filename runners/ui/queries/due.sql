-- Timers in event time, by the computation that has set them.
SELECT computation, count(*) AS timers, min(fires_at) AS first
FROM dataflow.readable_timers
WHERE job = %(job)s AND domain = 'event'
GROUP BY computation
ORDER BY computation
