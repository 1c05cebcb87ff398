-- What user code has counted, by commit, and all that was folded in one.

-- Inserted once and never updated: a row that each commit changes would be a hot one.  The driver of a stream replaces
-- many rows by one from time to time.
CREATE TABLE dataflow.metrics (
    metrics_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    range_id   integer,
    payload    bytea NOT NULL
) WITH (
    -- As much goes as comes.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000
);
CREATE INDEX metrics_by_range ON dataflow.metrics (range_id) WHERE range_id IS NOT NULL;
COMMENT ON TABLE dataflow.metrics IS 'What user code has counted, with the commits that it was counted for.';
COMMENT ON COLUMN dataflow.metrics.range_id IS
    'The range of a batch or backfill that has counted it, as that may be counted anew; NULL: of a stream.';
COMMENT ON COLUMN dataflow.metrics.payload IS 'Opaque here; runners/stored/metrics.py reads it.';

-- As migration 5 asks for: each job has its own.
ALTER TABLE dataflow.metrics ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
INSERT INTO dataflow.partitioned_tables VALUES ('metrics');
DO $$
DECLARE
    keeper text := (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
                    WHERE oid = 'dataflow.partitioned_tables'::regclass);
    number integer;
BEGIN
    IF keeper <> quote_ident(current_user) THEN
        EXECUTE 'ALTER TABLE dataflow.metrics OWNER TO ' || keeper;
    END IF;
    FOR number IN SELECT job_id FROM dataflow.jobs ORDER BY job_id LOOP
        PERFORM dataflow.add_partitions(number);
    END LOOP;
END
$$;
