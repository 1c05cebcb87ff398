-- Pages: parts of the state of a cell, in rows of their own.

-- The key of a page is 254, which no key of a cell begins with, 8 bytes for the state, 8 for the number of the page, and
-- the key of the cell.
CREATE FUNCTION dataflow.is_page(cell_key bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT substring(cell_key FROM 1 FOR 1) = '\xfe'
$$;

CREATE FUNCTION dataflow.cell_of_page(cell_key bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN dataflow.is_page(cell_key) THEN substring(cell_key FROM 18) ELSE cell_key END
$$;

CREATE OR REPLACE VIEW dataflow.readable_cells AS
SELECT j.name AS job, c.name AS computation, r.range_index,
       dataflow.key_of_cell(k.cell_key) AS key,
       CASE WHEN dataflow.has_window(k.cell_key)
            THEN dataflow.window_bound(k.cell_key, 1) END AS window_start,
       CASE WHEN dataflow.has_window(k.cell_key)
            THEN dataflow.window_bound(k.cell_key, 9) END AS window_end,
       octet_length(s.value) AS value_bytes,
       dataflow.is_page(s.cell_key) AS is_page
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.cells s USING (computation_id)
CROSS JOIN LATERAL (SELECT dataflow.cell_of_page(s.cell_key) AS cell_key) k
LEFT JOIN dataflow.ranges r ON r.computation_id = s.computation_id
    AND s.key_hash BETWEEN r.first_hash AND r.last_hash;
COMMENT ON VIEW dataflow.readable_cells IS
    'State.  A cell without a window has the state of its key in all windows, because they merge; state that is large is '
    'in pages, each a row.';
