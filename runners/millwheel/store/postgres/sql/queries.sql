-- Every statement that the store sends, by name.  queries.py loads this file.
-- Statements on user tables are composed in tables.py, because their names are the user's.
-- Parameters are binary: %(name)b.

-- name: settings
-- How this session works, whatever the role or the database default to.
-- Every statement below finds its rows by key.  Generic plans made while a table is still small
-- would scan it for ever, so scans and hashes are priced out; that leaves the plan we mean.
SELECT set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
                       THEN 'remote_apply' ELSE 'on' END, FALSE),
       set_config('default_transaction_isolation', 'read committed', FALSE),
       set_config('default_transaction_read_only', 'off', FALSE),
       set_config('lock_timeout', %(lock_timeout_ms)s, FALSE),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, FALSE),
       set_config('timezone', 'UTC', FALSE),
       set_config('plan_cache_mode', 'force_generic_plan', FALSE),
       set_config('enable_seqscan', 'off', FALSE),
       set_config('enable_hashjoin', 'off', FALSE),
       set_config('enable_mergejoin', 'off', FALSE),
       set_config('jit', 'off', FALSE);

-- name: server_facts
-- What checks.py judges the server by.
SELECT current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('fsync'),
       current_setting('full_page_writes');

-- name: schema_exists
-- Asked first, because creating anything needs rights that a worker's role may lack.
SELECT to_regclass('dataflow.schema_versions') IS NOT NULL;

-- name: create_schema
-- The table of versions is not itself a migration: it is what tells them apart.
CREATE SCHEMA IF NOT EXISTS dataflow;
CREATE TABLE IF NOT EXISTS dataflow.schema_versions (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON SCHEMA dataflow IS 'State of dataflow jobs: see the views in it.';
COMMENT ON TABLE dataflow.schema_versions IS 'Migrations that were applied.';

-- name: schema_version
-- The newest migration applied; 0 for none.
SELECT COALESCE(max(version), 0) FROM dataflow.schema_versions;

-- name: record_migration
-- In the same transaction as the migration.
INSERT INTO dataflow.schema_versions (version, name) VALUES (%(version)s, %(name)s);

-- name: lock_catalog
-- One driver at a time creates, resets or migrates: these are rare, and CREATE ... IF NOT EXISTS is
-- not safe against itself.  The number is arbitrary and ours.
SELECT pg_advisory_xact_lock(7205759403792793);

-- name: begin
-- First of a commit.  Read committed, so that each statement sees what committed before it ran.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: commit
-- Last of a commit.
COMMIT;

-- name: rollback
-- After a failed commit, so that its locks are gone before anything else happens.
ROLLBACK;

-- name: take_fences
-- The fence is a lock: from here to COMMIT nobody else owns these ranges.
SELECT dataflow.take_fences(%(range_ids)b, %(tokens)b, %(bundles)b,
                            %(watermarks_us)b, %(positions)b, %(are_finished)b);

-- name: upsert_cells
-- Blind writes: the owner is the only writer, so nothing needs to be read.
INSERT INTO dataflow.cells (computation_id, key_hash, cell_key, value)
SELECT * FROM unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(values)b)
ON CONFLICT (computation_id, key_hash, cell_key) DO UPDATE SET value = EXCLUDED.value;

-- name: delete_cells
-- State that is done with.
DELETE FROM dataflow.cells c
USING unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b)
      AS gone (computation_id, key_hash, cell_key)
WHERE c.computation_id = gone.computation_id AND c.key_hash = gone.key_hash
  AND c.cell_key = gone.cell_key;

-- name: upsert_timers
-- Setting a timer that is set moves it.
INSERT INTO dataflow.timers (computation_id, key_hash, cell_key, tag, domain, fire_us)
SELECT * FROM unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(tags)b, %(domains)b,
                     %(fires_us)b)
ON CONFLICT (computation_id, key_hash, cell_key, tag, domain)
DO UPDATE SET fire_us = EXCLUDED.fire_us;

-- name: delete_timers
-- Timers that fired or were taken back.
DELETE FROM dataflow.timers t
USING unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(tags)b, %(domains)b)
      AS gone (computation_id, key_hash, cell_key, tag, domain)
WHERE t.computation_id = gone.computation_id AND t.key_hash = gone.key_hash
  AND t.cell_key = gone.cell_key AND t.tag = gone.tag AND t.domain = gone.domain;

-- name: advance_deliveries
-- What was delivered, in the same transaction as its effects: that is the deduplication.
INSERT INTO dataflow.deliveries AS d (receiver_range_id, sender_range_id, delivered)
SELECT * FROM unnest(%(receiver_range_ids)b, %(sender_range_ids)b, %(sequences)b)
ON CONFLICT (receiver_range_id, sender_range_id)
DO UPDATE SET delivered = GREATEST(d.delivered, EXCLUDED.delivered);

-- name: insert_productions
-- Durable before they are sent.
INSERT INTO dataflow.productions
    (sender_range_id, receiver_range_id, sequence, min_timestamp_us, payload)
SELECT * FROM unnest(%(sender_range_ids)b, %(receiver_range_ids)b, %(sequences)b,
                     %(min_timestamps_us)b, %(payloads)b);

-- name: acknowledge_productions
-- Their numbers must stay taken when the rows are gone, so the mark moves with the deletion.
WITH acknowledged AS (
    INSERT INTO dataflow.acknowledgements AS a (sender_range_id, receiver_range_id, acknowledged)
    SELECT * FROM unnest(%(sender_range_ids)b, %(receiver_range_ids)b, %(sequences)b)
    ON CONFLICT (sender_range_id, receiver_range_id)
    DO UPDATE SET acknowledged = GREATEST(a.acknowledged, EXCLUDED.acknowledged)
    RETURNING a.sender_range_id, a.receiver_range_id, a.acknowledged
)
DELETE FROM dataflow.productions p
USING acknowledged a
WHERE p.sender_range_id = a.sender_range_id AND p.receiver_range_id = a.receiver_range_id
  AND p.sequence <= a.acknowledged;

-- name: insert_late
-- Not in any result, but not lost either.
INSERT INTO dataflow.late_records
    (job_id, transform, key, window_start_us, window_end_us, watermark_us, payload, count)
SELECT * FROM unnest(%(job_ids)b, %(transforms)b, %(keys)b, %(window_starts_us)b,
                     %(window_ends_us)b, %(watermarks_us)b, %(payloads)b, %(counts)b);

-- name: insert_dead_letters
INSERT INTO dataflow.dead_letters
    (job_id, stage, error, traceback, tries, timestamp_us, payload)
SELECT * FROM unnest(%(job_ids)b, %(stages)b, %(errors)b, %(tracebacks)b, %(tries)b,
                     %(timestamps_us)b, %(payloads)b);

-- name: advance_signals
-- How far ranges have come with the job's signals; only when it has changed, and never back.
UPDATE dataflow.fences f
SET signal_number = s.number, signal_hash = s.hash
FROM unnest(%(range_ids)b, %(numbers)b, %(hashes)b) AS s (range_id, number, hash)
WHERE f.range_id = s.range_id AND (f.signal_number, f.signal_hash) < (s.number, s.hash);

-- name: advance_percentiles
-- Percentile watermarks that ranges have acted on; GREATEST passes over what was NULL.
UPDATE dataflow.fences f
SET percentile_us = GREATEST(f.percentile_us, s.percentile_us)
FROM unnest(%(range_ids)b, %(percentiles_us)b) AS s (range_id, percentile_us)
WHERE f.range_id = s.range_id;

-- name: lock_fences
-- The same rows in the same order as commits take them; waits for a commit in flight to end.
SELECT range_id, token, bundle FROM dataflow.fences
WHERE range_id = ANY(%(range_ids)b)
ORDER BY range_id
FOR UPDATE;

-- name: evict_fence_holders
-- A stopped process can hold a fence with half a commit sent, which no timeout of the server ends.
-- The row's xmax is the transaction that has it locked.
SELECT pg_terminate_backend(a.pid)
FROM dataflow.fences f
JOIN pg_stat_activity a ON a.backend_xid = f.xmax
WHERE f.range_id = ANY(%(range_ids)b) AND a.pid <> pg_backend_pid();

-- name: end_reigns
-- Before a token moves: how far its owner came.
INSERT INTO dataflow.reigns (range_id, token, owner, last_bundle)
SELECT range_id, token, owner, bundle FROM dataflow.fences
WHERE range_id = ANY(%(range_ids)b);

-- name: move_tokens
-- From here on every commit of an earlier owner fails.
UPDATE dataflow.fences
SET token = nextval('dataflow.tokens'), owner = %(owner)s
WHERE range_id = ANY(%(range_ids)b);

-- name: read_reigns
-- The last bundle committed under tokens that were taken away.
SELECT r.range_id, r.last_bundle
FROM unnest(%(range_ids)b, %(tokens)b) AS asked (range_id, token)
JOIN dataflow.reigns r USING (range_id, token);

-- name: insert_job
-- Under lock_catalog.
INSERT INTO dataflow.jobs (name, mode, fingerprint, signals)
VALUES (%(name)s, %(mode)s, %(fingerprint)s, %(signals)s)
RETURNING job_id;

-- name: listen
-- What a job's triggers listen to may change with their code.
UPDATE dataflow.jobs SET signals = %(signals)s WHERE job_id = %(job_id)s AND signals <> %(signals)s;

-- name: insert_ranges
-- Computations, their ranges and their fences in one go; ids in the order given.
WITH spec AS (
    SELECT * FROM unnest(%(computations)b, %(range_indexes)b, %(first_hashes)b, %(last_hashes)b,
                         %(splits)b)
        WITH ORDINALITY AS s (computation, range_index, first_hash, last_hash, split, ordinal)
), named AS (
    INSERT INTO dataflow.computations (job_id, name)
    SELECT %(job_id)s, computation FROM spec GROUP BY computation ORDER BY min(ordinal)
    RETURNING computation_id, name
), added AS (
    INSERT INTO dataflow.ranges (computation_id, range_index, first_hash, last_hash, split)
    SELECT n.computation_id, s.range_index, s.first_hash, s.last_hash, s.split
    FROM spec s JOIN named n ON n.name = s.computation
    ORDER BY s.ordinal
    RETURNING range_id
)
INSERT INTO dataflow.fences (range_id) SELECT range_id FROM added;

-- name: read_job
-- The job itself.
SELECT job_id, mode, fingerprint, finished_at IS NOT NULL, signals
FROM dataflow.jobs WHERE name = %(name)s;

-- name: lock_job
-- The same, for one sender of signals at a time: so numbers have no gaps, and become visible in their order.
SELECT job_id, mode, fingerprint, finished_at IS NOT NULL, signals
FROM dataflow.jobs WHERE name = %(name)s
FOR NO KEY UPDATE;

-- name: read_jobs
-- A line for each job.  Its watermark is unknown while a single range has none.
SELECT j.name, j.mode, j.finished_at IS NOT NULL, j.signals, count(f.range_id),
       count(f.range_id) FILTER (WHERE NOT f.is_finished),
       CASE WHEN bool_and(f.watermark_us IS NOT NULL) THEN min(f.watermark_us) END
FROM dataflow.jobs j
LEFT JOIN dataflow.computations c USING (job_id)
LEFT JOIN dataflow.ranges r USING (computation_id)
LEFT JOIN dataflow.fences f USING (range_id)
GROUP BY j.job_id
ORDER BY j.name;

-- name: next_token
-- A number that nobody has had.
SELECT nextval('dataflow.tokens');

-- name: find_signal
-- Whether a request that was cut off has been carried out.
SELECT number FROM dataflow.signals WHERE request = %(request)s;

-- name: insert_signal
-- Under lock_job.
INSERT INTO dataflow.signals (job_id, number, name, request)
SELECT %(job_id)s, COALESCE(max(number), 0) + 1, %(name)s, %(request)s
FROM dataflow.signals WHERE job_id = %(job_id)s
RETURNING number;

-- name: read_signals
-- Signals of a job that a master does not know yet.
SELECT s.number, s.name
FROM dataflow.jobs j JOIN dataflow.signals s USING (job_id)
WHERE j.name = %(name)s AND s.number > %(after)s
ORDER BY s.number;

-- name: read_ranges
-- Every range of a job, with the ids that commits use.
SELECT c.name, r.range_index, r.range_id, r.computation_id, r.first_hash, r.last_hash, r.split,
       f.token, f.bundle, f.owner, f.position, f.watermark_us, f.is_finished, f.signal_number,
       f.signal_hash, f.percentile_us
FROM dataflow.computations c
JOIN dataflow.ranges r USING (computation_id)
JOIN dataflow.fences f USING (range_id)
WHERE c.job_id = %(job_id)s
ORDER BY r.range_id;

-- name: read_cells
-- State of ranges, at takeover.
SELECT r.range_id, c.key_hash, c.cell_key, c.value
FROM dataflow.ranges r
JOIN dataflow.cells c ON c.computation_id = r.computation_id
    AND c.key_hash BETWEEN r.first_hash AND r.last_hash
WHERE r.range_id = ANY(%(range_ids)b);

-- name: read_timers
-- Timers of ranges, at takeover.
SELECT r.range_id, t.key_hash, t.cell_key, t.tag, t.domain, t.fire_us
FROM dataflow.ranges r
JOIN dataflow.timers t ON t.computation_id = r.computation_id
    AND t.key_hash BETWEEN r.first_hash AND r.last_hash
WHERE r.range_id = ANY(%(range_ids)b);

-- name: read_deliveries
-- Channels into ranges.
SELECT receiver_range_id, sender_range_id, delivered
FROM dataflow.deliveries WHERE receiver_range_id = ANY(%(range_ids)b);

-- name: read_acknowledgements
-- Channels out of ranges: numbers given out, whose productions are gone.
SELECT sender_range_id, receiver_range_id, acknowledged
FROM dataflow.acknowledgements WHERE sender_range_id = ANY(%(range_ids)b);

-- name: read_productions
-- What is to be sent again, in order.
SELECT sender_range_id, receiver_range_id, sequence, min_timestamp_us, payload
FROM dataflow.productions WHERE sender_range_id = ANY(%(range_ids)b)
ORDER BY sender_range_id, receiver_range_id, sequence;

-- name: finish_job
-- The first time counts.
UPDATE dataflow.jobs SET finished_at = COALESCE(finished_at, now()) WHERE name = %(name)s;

-- name: delete_job_state
-- What commits wrote; the catalog rows go with the job by cascade.
WITH mine AS MATERIALIZED (
    SELECT c.computation_id, r.range_id
    FROM dataflow.computations c LEFT JOIN dataflow.ranges r USING (computation_id)
    WHERE c.job_id = %(job_id)s
), cells AS (
    DELETE FROM dataflow.cells WHERE computation_id IN (SELECT computation_id FROM mine)
), timers AS (
    DELETE FROM dataflow.timers WHERE computation_id IN (SELECT computation_id FROM mine)
), productions AS (
    DELETE FROM dataflow.productions WHERE sender_range_id IN (SELECT range_id FROM mine)
), deliveries AS (
    DELETE FROM dataflow.deliveries WHERE receiver_range_id IN (SELECT range_id FROM mine)
), acknowledgements AS (
    DELETE FROM dataflow.acknowledgements WHERE sender_range_id IN (SELECT range_id FROM mine)
), reigns AS (
    DELETE FROM dataflow.reigns WHERE range_id IN (SELECT range_id FROM mine)
), late AS (
    DELETE FROM dataflow.late_records WHERE job_id = %(job_id)s
), dead AS (
    DELETE FROM dataflow.dead_letters WHERE job_id = %(job_id)s
), fences AS (
    DELETE FROM dataflow.fences WHERE range_id IN (SELECT range_id FROM mine)
)
DELETE FROM dataflow.jobs WHERE job_id = %(job_id)s;

-- name: record_table
-- Who writes a table, and whether this job brought it into being.  Opening again does not forget.
INSERT INTO dataflow.result_tables AS t (job_id, schema_name, table_name, is_created)
VALUES (%(job_id)s, %(schema_name)s, %(table_name)s, %(is_created)s)
ON CONFLICT (job_id, schema_name, table_name)
DO UPDATE SET is_created = t.is_created OR EXCLUDED.is_created;

-- name: bequeath_tables
-- A table that another job writes too is not dropped with the job that created it; the oldest other
-- job becomes its creator.
UPDATE dataflow.result_tables t
SET is_created = TRUE
FROM dataflow.result_tables mine
WHERE mine.job_id = %(job_id)s AND mine.is_created
  AND (t.schema_name, t.table_name) = (mine.schema_name, mine.table_name)
  AND t.job_id = (SELECT min(o.job_id) FROM dataflow.result_tables o
                  WHERE o.job_id <> %(job_id)s
                    AND (o.schema_name, o.table_name) = (mine.schema_name, mine.table_name));

-- name: droppable_tables
-- Tables that this job created and no other job writes.
SELECT t.schema_name, t.table_name
FROM dataflow.result_tables t
WHERE t.job_id = %(job_id)s AND t.is_created
  AND NOT EXISTS (SELECT FROM dataflow.result_tables o
                  WHERE o.job_id <> t.job_id
                    AND (o.schema_name, o.table_name) = (t.schema_name, t.table_name))
ORDER BY t.schema_name, t.table_name;

-- name: find_table
-- A user's table as its unqualified or qualified name finds it, its kind and its persistence.
SELECT n.nspname, c.relname, c.relkind::text, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%(quoted_name)s);

-- name: read_columns
-- Columns of a user's table in order, with the type as text, and whether in the primary key.
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       COALESCE(a.attnum = ANY(i.indkey::smallint[]), FALSE)
FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%(quoted_name)s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;

-- name: current_schema
-- Where an unqualified name would be created.
SELECT current_schema();

-- name: allow_scans
-- Reading a whole table is a scan, and in this one transaction may be planned as one.
SELECT set_config('enable_seqscan', 'on', TRUE);

-- name: read_late
-- Late records of a job, oldest first.
SELECT l.transform, l.key, l.window_start_us, l.window_end_us, l.watermark_us, l.payload, l.count
FROM dataflow.late_records l JOIN dataflow.jobs j USING (job_id)
WHERE j.name = %(name)s
ORDER BY l.late_record_id;

-- name: read_dead_letters
-- Dead letters of a job, oldest first.
SELECT d.stage, d.error, d.traceback, d.tries, d.timestamp_us, d.payload
FROM dataflow.dead_letters d JOIN dataflow.jobs j USING (job_id)
WHERE j.name = %(name)s
ORDER BY d.dead_letter_id;

-- name: read_late_counts
-- How many records of a job came too late, for each transform that dropped any.
SELECT l.transform, sum(l.count)::bigint
FROM dataflow.late_records l JOIN dataflow.jobs j USING (job_id)
WHERE j.name = %(name)s
GROUP BY l.transform
ORDER BY l.transform;

-- name: statistics
-- Row counts of a job by kind.
WITH mine AS MATERIALIZED (
    SELECT c.computation_id, r.range_id
    FROM dataflow.jobs j
    JOIN dataflow.computations c USING (job_id)
    LEFT JOIN dataflow.ranges r USING (computation_id)
    WHERE j.name = %(name)s
), channels AS (
    SELECT sender_range_id, receiver_range_id FROM dataflow.productions
    WHERE sender_range_id IN (SELECT range_id FROM mine)
    UNION
    SELECT sender_range_id, receiver_range_id FROM dataflow.acknowledgements
    WHERE sender_range_id IN (SELECT range_id FROM mine)
    UNION
    SELECT sender_range_id, receiver_range_id FROM dataflow.deliveries
    WHERE receiver_range_id IN (SELECT range_id FROM mine)
)
SELECT
    (SELECT count(*) FROM dataflow.cells
     WHERE computation_id IN (SELECT computation_id FROM mine)),
    (SELECT count(*) FROM dataflow.timers
     WHERE computation_id IN (SELECT computation_id FROM mine)),
    (SELECT count(*) FROM dataflow.productions
     WHERE sender_range_id IN (SELECT range_id FROM mine)),
    (SELECT count(*) FROM channels),
    (SELECT count(*) FROM dataflow.late_records l JOIN dataflow.jobs j USING (job_id)
     WHERE j.name = %(name)s),
    (SELECT count(*) FROM dataflow.dead_letters d JOIN dataflow.jobs j USING (job_id)
     WHERE j.name = %(name)s),
    (SELECT count(*) FROM dataflow.fences
     WHERE NOT is_finished AND range_id IN (SELECT range_id FROM mine));

-- name: lock_job_run
-- One driver at a time runs a job; by its name, because the job may not be there yet.
SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 7205759403792794));

-- name: job_run_holder
-- Who runs a job: the session, the driver as it names itself, and since when.  Postgres shows a key in two halves.
SELECT a.pid, a.application_name, a.backend_start
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.classid::bigint = (hashtextextended(%(name)s, 7205759403792794) >> 32) & 4294967295
  AND l.objid::bigint = hashtextextended(%(name)s, 7205759403792794) & 4294967295;

-- name: end_session
-- One of ours that the server has not noticed to be dead.
SELECT pg_terminate_backend(%(pid)s);

-- name: name_session
-- So that others can say who it is.
SELECT set_config('application_name', %(name)s, FALSE);

-- name: is_alive
-- Whether the session is still there, and with it what it holds.
SELECT 1;
