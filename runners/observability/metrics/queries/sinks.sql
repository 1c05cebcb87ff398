-- What waits for the sinks of unfinished jobs, how fresh they are, and since when they fail.
SELECT s.job, s.outbox, sum(s.waiting)::bigint AS waiting, min(s.oldest) AS oldest, min(s.failing_since) AS failing_since,
       min(s.visible_at) AS visible_at, EXTRACT(epoch FROM max(s.visible_at - s.written_first))::float8 AS delay_s
FROM dataflow.sink_status s
JOIN dataflow.jobs j ON j.name = s.job AND j.finished_at IS NULL
GROUP BY s.job, s.outbox
