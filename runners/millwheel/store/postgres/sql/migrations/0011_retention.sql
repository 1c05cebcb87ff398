-- What a store need not keep for ever: late records and dead letters that somebody has had enough of, ranges that were
-- merged away, requests and signals that were carried out.

-- So that the number of late records does not shrink when the records go.
CREATE TABLE dataflow.purged (
    job_id integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    kind   text NOT NULL CHECK (kind IN ('late', 'dead')),
    source text NOT NULL,
    count  bigint NOT NULL,
    PRIMARY KEY (job_id, kind, source)
);
COMMENT ON TABLE dataflow.purged IS
    'How many late records and dead letters of a job were deleted, by transform or stage.';

ALTER TABLE dataflow.ranges ADD COLUMN retired_at timestamptz;
COMMENT ON COLUMN dataflow.ranges.retired_at IS
    'When a range that was merged into another had nothing left to do; it is deleted a day later.';
UPDATE dataflow.ranges r SET retired_at = now()
FROM dataflow.fences f
WHERE f.range_id = r.range_id AND f.is_finished AND r.first_hash IS NULL AND r.split IS NULL;

-- The table is as large as what was deleted between two vacuums: 5,000 rows of 6 kB are 30 MB, for a handful of rows in
-- flight.  A vacuum of so small a table takes milliseconds.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN
        SELECT 'dataflow.productions'::regclass
        UNION ALL
        SELECT inhrelid::regclass FROM pg_inherits
        WHERE inhparent = 'dataflow.productions'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_threshold = 500)', part);
    END LOOP;
END
$$;
