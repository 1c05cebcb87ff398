-- Changes of state that are durable before they are in cells and timers.

-- Inserted once, never updated, and deleted in the order of their bundles.
CREATE TABLE dataflow.journal (
    range_id integer NOT NULL,
    bundle   bigint NOT NULL,
    part     integer NOT NULL,
    cells    integer NOT NULL,
    payload  bytea NOT NULL,
    PRIMARY KEY (range_id, bundle, part)
) WITH (
    -- As much goes as comes.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000
);
-- Pickles of many small things: compressing them takes longer than writing them.
ALTER TABLE dataflow.journal ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE dataflow.journal IS
    'What has changed in the state of key ranges and is not in their cells and timers yet.';
COMMENT ON COLUMN dataflow.journal.cells IS 'How many cells the entry is about.';
COMMENT ON COLUMN dataflow.journal.payload IS 'Opaque here; the owner of the range applies it.';

-- As migration 5 asks for: each job has its own.
ALTER TABLE dataflow.journal ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
INSERT INTO dataflow.partitioned_tables VALUES ('journal');
DO $$
DECLARE
    keeper text := (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
                    WHERE oid = 'dataflow.partitioned_tables'::regclass);
    number integer;
BEGIN
    IF keeper <> quote_ident(current_user) THEN
        EXECUTE 'ALTER TABLE dataflow.journal OWNER TO ' || keeper;
    END IF;
    FOR number IN SELECT job_id FROM dataflow.jobs ORDER BY job_id LOOP
        PERFORM dataflow.add_partitions(number);
    END LOOP;
END
$$;

CREATE VIEW dataflow.readable_journal AS
SELECT j.name AS job, c.name AS computation, r.range_index, w.bundle, w.part, w.cells,
       octet_length(w.payload) AS payload_bytes
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.ranges r USING (computation_id)
JOIN dataflow.journal w USING (range_id);
COMMENT ON VIEW dataflow.readable_journal IS
    'Changes of state that are not in cells and timers yet: how many, of which range and commit.';
