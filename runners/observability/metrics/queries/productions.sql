-- What is durable and not acknowledged yet, by the stage that is to take it in.
SELECT job, receiver, sum(pending)::bigint AS pending, min(oldest) AS oldest
FROM dataflow.channel_status
GROUP BY job, receiver
