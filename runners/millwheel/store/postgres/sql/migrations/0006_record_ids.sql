-- Ids of records, by which those are known that a source hands over again.

-- Inserted once, never updated, and deleted by time when nobody can ask for them any more.
CREATE TABLE dataflow.record_ids (
    range_id     integer NOT NULL,
    record_id    bytea NOT NULL,
    timestamp_us bigint NOT NULL,
    PRIMARY KEY (range_id, record_id)
) WITH (
    -- As much goes as comes: without vacuum the indexes only grow.
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 10000
);
CREATE INDEX record_ids_by_time ON dataflow.record_ids (range_id, timestamp_us);
COMMENT ON TABLE dataflow.record_ids IS
    'Records that have counted, for each split of a source, until copies of them would come too late.';
COMMENT ON COLUMN dataflow.record_ids.record_id IS 'A digest of the id: dataflow.record_ids.record_digest.';
COMMENT ON COLUMN dataflow.record_ids.timestamp_us IS
    'Event time of the record, microseconds since 1970.';

-- As migration 5 asks for: each job has its own.
ALTER TABLE dataflow.record_ids ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
INSERT INTO dataflow.partitioned_tables VALUES ('record_ids');
DO $$
DECLARE
    keeper text := (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
                    WHERE oid = 'dataflow.partitioned_tables'::regclass);
    number integer;
BEGIN
    IF keeper <> quote_ident(current_user) THEN
        EXECUTE 'ALTER TABLE dataflow.record_ids OWNER TO ' || keeper;
    END IF;
    FOR number IN SELECT job_id FROM dataflow.jobs ORDER BY job_id LOOP
        PERFORM dataflow.add_partitions(number);
    END LOOP;
END
$$;

CREATE VIEW dataflow.readable_record_ids AS
SELECT j.name AS job, c.name AS computation, r.range_index,
       encode(i.record_id, 'hex') AS record_id, dataflow.instant(i.timestamp_us) AS "timestamp"
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.ranges r USING (computation_id)
JOIN dataflow.record_ids i USING (range_id);
COMMENT ON VIEW dataflow.readable_record_ids IS
    'Digests of the ids of records that have counted, and their event times.';
