-- What waits for sinks, since when, and why it fails.
SELECT outbox, sink, lane, waiting, oldest, delivered, failing_since, tries, reason, written_last, visible_at
FROM dataflow.sink_status
WHERE job = %(job)s
ORDER BY outbox, lane
