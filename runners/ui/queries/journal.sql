-- Changes of state that are durable and not in cells yet: those of windows that are still buffered are among them.
SELECT computation, count(*) AS entries, sum(cells)::bigint AS cells, sum(payload_bytes)::bigint AS bytes
FROM dataflow.readable_journal
WHERE job = %(job)s
GROUP BY computation
ORDER BY computation
