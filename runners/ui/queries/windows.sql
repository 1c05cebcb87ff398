-- Windows that have state: how many keys, and how many bytes.  Windows that merge have one cell for all windows of a key.
SELECT computation, window_start, window_end, count(*) AS cells, sum(value_bytes)::bigint AS bytes
FROM dataflow.readable_cells
WHERE job = %(job)s AND NOT is_page
GROUP BY computation, window_start, window_end
ORDER BY window_end, computation, window_start
LIMIT 200
