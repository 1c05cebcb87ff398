-- State of one key, found by the hash of its encoding.
SELECT c.name AS computation,
       CASE WHEN dataflow.has_window(k.cell_key) THEN dataflow.window_bound(k.cell_key, 1) END AS window_start,
       CASE WHEN dataflow.has_window(k.cell_key) THEN dataflow.window_bound(k.cell_key, 9) END AS window_end,
       count(*) AS cells, sum(octet_length(s.value))::bigint AS bytes
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.cells s USING (computation_id)
CROSS JOIN LATERAL (SELECT dataflow.cell_of_page(s.cell_key) AS cell_key) k
WHERE j.name = %(job)s AND s.key_hash = ANY(%(hashes)s::bigint[])
GROUP BY 1, 2, 3
ORDER BY 1, 2
LIMIT 200
