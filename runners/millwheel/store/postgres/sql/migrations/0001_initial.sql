-- The exactly-once core's truth.  Applied by schema.py, once, in one transaction, under a lock.
--
-- Reading it with psql:  SET search_path = dataflow;  then the views range_status, channel_status
-- and job_status give names and times; the tables below them keep short ids, because they are
-- written many times a second.
--
-- Two rules run through all of it:
--   * Tables that commits write have no foreign keys.  A foreign key takes a lock on the row it
--     points to, and the only lock that commits may meet on is the fence.
--   * Key hashes are unsigned 64-bit numbers minus 2^63, which keeps their order in a bigint, so a
--     key range is an index range, and splitting one moves no row.

CREATE TABLE dataflow.jobs (
    job_id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE,
    mode        text NOT NULL,
    fingerprint text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
COMMENT ON TABLE dataflow.jobs IS 'Jobs by name; finished_at is set when nothing is left to do.';
COMMENT ON COLUMN dataflow.jobs.fingerprint IS
    'Shape of the pipeline: another one may not continue under the same name.';

CREATE TABLE dataflow.computations (
    computation_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    name           text NOT NULL,
    UNIQUE (job_id, name)
);
COMMENT ON TABLE dataflow.computations IS
    'Computations of a job; an id belongs to one job only and is never used again.';

CREATE TABLE dataflow.ranges (
    range_id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    computation_id integer NOT NULL REFERENCES dataflow.computations ON DELETE CASCADE,
    range_index    integer NOT NULL,
    first_hash     bigint,
    last_hash      bigint,
    split          bytea,
    UNIQUE (computation_id, range_index),
    CHECK ((first_hash IS NULL) = (last_hash IS NULL)),
    CHECK (first_hash <= last_hash)
);
COMMENT ON TABLE dataflow.ranges IS
    'Units of ownership: a range of key hashes, or a split of a source.';
COMMENT ON COLUMN dataflow.ranges.last_hash IS
    'Inclusive, because one past the largest hash is no bigint.';
COMMENT ON COLUMN dataflow.ranges.split IS 'What a source reads; opaque to the store.';

-- Never repeats, not even for a job that was reset and created again under its old name, so that a
-- commit delayed since the earlier life of the job fits no later fence.
CREATE SEQUENCE dataflow.tokens AS bigint;
COMMENT ON SEQUENCE dataflow.tokens IS 'Sequencer tokens, unique in this database.';

-- Apart from ranges, because this row is written by every commit and should be small.
-- Half-empty pages let the new version of a row go beside the old one (a HOT update), which needs
-- no index entry and no vacuum; the few hundred rows make the space free.
CREATE TABLE dataflow.fences (
    range_id     integer PRIMARY KEY,
    token        bigint NOT NULL DEFAULT nextval('dataflow.tokens'),
    bundle       bigint NOT NULL DEFAULT 0,
    owner        text,
    watermark_us bigint,
    is_finished  boolean NOT NULL DEFAULT FALSE,
    position     bytea
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE dataflow.fences IS
    'The lock of every commit: who may commit on a range, and how far it has come.';
COMMENT ON COLUMN dataflow.fences.token IS 'Changes with the owner; a commit must know it.';
COMMENT ON COLUMN dataflow.fences.bundle IS
    'Number of the last committed bundle; the next commit must take this plus one.';
COMMENT ON COLUMN dataflow.fences.watermark_us IS
    'Event time up to which the range has acted, microseconds since 1970; only advances.';
COMMENT ON COLUMN dataflow.fences.position IS 'Where a source reads on; opaque to the store.';

-- Append-only history.  It makes resolving an unknown commit exact: a bundle landed if, and only
-- if, the reign of its token went that far.
CREATE TABLE dataflow.reigns (
    range_id    integer NOT NULL,
    token       bigint NOT NULL,
    owner       text,
    last_bundle bigint NOT NULL,
    ended_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (range_id, token)
);
COMMENT ON TABLE dataflow.reigns IS 'Former owners of every range, and their last bundle.';

-- Most commits overwrite cells that exist, often small ones: free space in the page keeps the new
-- version beside the old.
CREATE TABLE dataflow.cells (
    computation_id integer NOT NULL,
    key_hash       bigint NOT NULL,
    cell_key       bytea NOT NULL,
    value          bytea NOT NULL,
    PRIMARY KEY (computation_id, key_hash, cell_key)
) WITH (
    fillfactor = 60,
    -- Versions that are not pruned in place must not pile up until a fifth of the table is dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.2
);
-- Values are pickles or packed columns: trying to compress them costs commits more than it saves.
ALTER TABLE dataflow.cells ALTER COLUMN value SET STORAGE EXTERNAL;
COMMENT ON TABLE dataflow.cells IS 'State of every key of every computation.';
COMMENT ON COLUMN dataflow.cells.cell_key IS 'Key, and window if per window; opaque to the store.';

CREATE TABLE dataflow.timers (
    computation_id integer NOT NULL,
    key_hash       bigint NOT NULL,
    cell_key       bytea NOT NULL,
    tag            bytea NOT NULL,
    domain         text NOT NULL CHECK (domain IN ('event', 'processing')),
    fire_us        bigint NOT NULL,
    PRIMARY KEY (computation_id, key_hash, cell_key, tag, domain)
) WITH (
    fillfactor = 80,
    -- A timer is born and dies: without vacuum the indexes only grow.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);
-- No other index: owners keep what is due in memory, and a plan made on an empty table would take an
-- index on (computation_id, ...) for every delete and walk all timers of the computation each time.
COMMENT ON TABLE dataflow.timers IS 'Timers that are set; a fired or deleted timer has no row.';
COMMENT ON COLUMN dataflow.timers.fire_us IS 'Microseconds since 1970, in the time of the domain.';

-- A queue: every row is inserted once and deleted soon, never updated.
CREATE TABLE dataflow.productions (
    sender_range_id   integer NOT NULL,
    receiver_range_id integer NOT NULL,
    sequence          bigint NOT NULL,
    min_timestamp_us  bigint NOT NULL,
    payload           bytea NOT NULL,
    PRIMARY KEY (sender_range_id, receiver_range_id, sequence)
) WITH (
    -- The table is as large as what is in flight; a share of that says nothing about its garbage.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000
);
ALTER TABLE dataflow.productions ALTER COLUMN payload SET STORAGE EXTERNAL;
COMMENT ON TABLE dataflow.productions IS
    'Bundles made durable before they are sent, until the receiver has committed them.';
COMMENT ON COLUMN dataflow.productions.min_timestamp_us IS
    'Smallest event time inside: holds the sender''s watermark until acknowledged.';

-- The two ends of a channel are two tables: they are written by two owners, and a common row would
-- make the commit of one wait for the other.
CREATE TABLE dataflow.deliveries (
    receiver_range_id integer NOT NULL,
    sender_range_id   integer NOT NULL,
    delivered         bigint NOT NULL,
    PRIMARY KEY (receiver_range_id, sender_range_id)
) WITH (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE dataflow.deliveries IS
    'Receiving end of a channel: the highest sequence seen; whatever is not above it is a repeat.';

CREATE TABLE dataflow.acknowledgements (
    sender_range_id   integer NOT NULL,
    receiver_range_id integer NOT NULL,
    acknowledged      bigint NOT NULL,
    PRIMARY KEY (sender_range_id, receiver_range_id)
) WITH (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE dataflow.acknowledgements IS
    'Sending end of a channel: productions up to here are gone, and their numbers stay taken.';

CREATE TABLE dataflow.late_records (
    late_record_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          integer NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    transform       text NOT NULL,
    key             text NOT NULL,
    window_start_us bigint NOT NULL,
    window_end_us   bigint NOT NULL,
    watermark_us    bigint NOT NULL,
    payload         bytea NOT NULL,
    count           bigint NOT NULL
);
CREATE INDEX late_records_by_job ON dataflow.late_records (job_id);
COMMENT ON TABLE dataflow.late_records IS
    'Records that came after their window''s state was gone: not in any result, kept for replay.';
COMMENT ON COLUMN dataflow.late_records.payload IS 'The pickled record.';

CREATE TABLE dataflow.result_tables (
    job_id      integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    schema_name text NOT NULL,
    table_name  text NOT NULL,
    is_created  boolean NOT NULL,
    PRIMARY KEY (job_id, schema_name, table_name)
);
COMMENT ON TABLE dataflow.result_tables IS
    'Tables that a job writes; is_created marks the job whose reset drops the table.';

-- Take every fence or raise; the first statement of every commit.  One row after the other in the
-- order given (the client sorts), so that two commits never wait for each other in a circle.
-- The SQLSTATE belongs to nobody else: classes from I to Z are free for use.
CREATE FUNCTION dataflow.take_fences(
    range_ids    integer[],
    tokens       bigint[],
    bundles      bigint[],
    watermarks   bigint[],
    positions    bytea[],
    are_finished boolean[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. cardinality(range_ids) LOOP
        UPDATE dataflow.fences
        SET bundle = bundles[i],
            watermark_us = GREATEST(watermark_us, watermarks[i]),
            position = COALESCE(positions[i], position),
            is_finished = is_finished OR are_finished[i]
        WHERE range_id = range_ids[i] AND token = tokens[i] AND bundle = bundles[i] - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'range % is not owned with token % at bundle %',
                range_ids[i], tokens[i], bundles[i] - 1
                USING ERRCODE = 'MW001', DETAIL = range_ids[i]::text;
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION dataflow.take_fences IS
    'Lock and advance the fences of a commit; raises MW001 with the range id if one is lost.';

-- Readable times for the views: microseconds since 1970, beyond the calendar as infinity.
CREATE FUNCTION dataflow.instant(microseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN microseconds < -62135596800000000 THEN '-infinity'::timestamptz
        WHEN microseconds > 253402300799999999 THEN 'infinity'::timestamptz
        ELSE to_timestamp(0) + (microseconds / 1000000) * INTERVAL '1 second'
             + (microseconds % 1000000) * INTERVAL '1 microsecond'
    END
$$;

CREATE VIEW dataflow.range_status AS
SELECT j.name AS job, c.name AS computation, r.range_index, f.owner, f.token, f.bundle,
       dataflow.instant(f.watermark_us) AS watermark, f.is_finished
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.ranges r USING (computation_id)
JOIN dataflow.fences f USING (range_id);
COMMENT ON VIEW dataflow.range_status IS 'Every range: who owns it and how far it has come.';

CREATE VIEW dataflow.channel_status AS
SELECT j.name AS job, sc.name AS sender, s.range_index AS sender_index,
       rc.name AS receiver, r.range_index AS receiver_index,
       count(*) AS pending, min(p.sequence) AS first_sequence, max(p.sequence) AS last_sequence,
       dataflow.instant(min(p.min_timestamp_us)) AS holds_watermark_at
FROM dataflow.productions p
JOIN dataflow.ranges s ON s.range_id = p.sender_range_id
JOIN dataflow.computations sc ON sc.computation_id = s.computation_id
JOIN dataflow.jobs j USING (job_id)
JOIN dataflow.ranges r ON r.range_id = p.receiver_range_id
JOIN dataflow.computations rc ON rc.computation_id = r.computation_id
GROUP BY j.name, sc.name, s.range_index, rc.name, r.range_index;
COMMENT ON VIEW dataflow.channel_status IS 'What was made durable and is not acknowledged yet.';

CREATE VIEW dataflow.job_status AS
SELECT j.name AS job, j.mode, j.created_at, j.finished_at,
       count(f.range_id) AS ranges,
       count(f.range_id) FILTER (WHERE NOT f.is_finished) AS open_ranges,
       -- Unknown while a single range has none: a missing watermark may be the lowest.
       CASE WHEN bool_and(f.watermark_us IS NOT NULL)
            THEN dataflow.instant(min(f.watermark_us)) END AS low_watermark
FROM dataflow.jobs j
LEFT JOIN dataflow.computations c USING (job_id)
LEFT JOIN dataflow.ranges r USING (computation_id)
LEFT JOIN dataflow.fences f USING (range_id)
GROUP BY j.job_id;
COMMENT ON VIEW dataflow.job_status IS 'Jobs at a glance.';
