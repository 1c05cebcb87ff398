-- What is durable and not acknowledged yet, from range to range.
SELECT sender, sender_index, receiver, receiver_index, pending, holds_watermark_at, oldest, clock_timestamp() AS now
FROM dataflow.channel_status
WHERE job = %(job)s
ORDER BY holds_watermark_at, sender, receiver
LIMIT 500
