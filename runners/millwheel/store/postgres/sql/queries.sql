-- Every statement that the store sends, by name.  queries.py loads this file.
-- Statements on user tables are composed in tables.py, because their names are the user's.
-- {cells} is the table of that name that belongs to one job (migration 5): commits name it.  A transaction that
-- names it must have locked a fence of the job, or its row, so that no reset drops it meanwhile.
-- Parameters are binary: %(name)b.

-- name: settings
-- How this session works, whatever the role or the database default to.
-- Every statement below finds its rows by key.  Generic plans made while a table is still small
-- would scan it for ever, so scans and hashes are priced out; that leaves the plan we mean.
-- Of two tables in a nested loop the wrong one would come first, where the right one has few rows: so rows that are to be
-- changed are looked up before, each by its whole key, and changed by their places (ctid), which nobody else changes.
SELECT set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
                       THEN 'remote_apply' ELSE 'on' END, FALSE),
       set_config('default_transaction_isolation', 'read committed', FALSE),
       set_config('default_transaction_read_only', 'off', FALSE),
       set_config('lock_timeout', %(lock_timeout_ms)s, FALSE),
       set_config('idle_in_transaction_session_timeout', %(idle_timeout_ms)s, FALSE),
       -- A session that waits for work is not to be ended, nor, by default, a statement that takes long on purpose.
       set_config('statement_timeout', %(statement_timeout_ms)s, FALSE),
       set_config('idle_session_timeout', '0', FALSE),
       set_config('timezone', 'UTC', FALSE),
       -- The first is not on every server.  By the second what this session writes of tables goes to disk at once;
       -- otherwise the kernel keeps it for half a minute, and then a commit waits behind all of it (ADR 0114).
       (SELECT count(set_config(name, CASE name WHEN 'transaction_timeout' THEN '0' ELSE '1MB' END, FALSE))
        FROM pg_settings
        WHERE name = 'transaction_timeout' OR (name = 'backend_flush_after' AND setting = '0' AND context = 'user')),
       set_config('plan_cache_mode', 'force_generic_plan', FALSE),
       set_config('enable_seqscan', 'off', FALSE),
       -- It would collect all versions that a snapshot keeps, and then take the last.
       set_config('enable_bitmapscan', 'off', FALSE),
       set_config('enable_hashjoin', 'off', FALSE),
       set_config('enable_mergejoin', 'off', FALSE),
       set_config('enable_memoize', 'off', FALSE),
       set_config('jit', 'off', FALSE);

-- name: server_facts
-- What checks.py judges the server by.
SELECT current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('fsync'),
       current_setting('full_page_writes'),
       pg_postmaster_start_time()::text;

-- name: server_version
-- For people.
SELECT current_setting('server_version');

-- name: session_pid
-- Which process of the server does what this connection asks for.
SELECT pg_backend_pid();

-- name: schema_exists
-- Asked first, because creating anything needs rights that a worker's role may lack.
SELECT to_regclass('dataflow.schema_versions') IS NOT NULL;

-- name: create_schema
-- The table of versions is not itself a migration: it records which ones were applied.
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
-- First of a commit with a COPY.  Read committed, so that each statement sees what committed before it ran.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: commit
-- Last of a commit with a COPY.
COMMIT;

-- name: rollback
-- After a failed commit, so that its locks are gone before anything else happens.
ROLLBACK;

-- name: write_something
-- A transaction that has written nothing does not wait for a standby; this has it do so.
SELECT pg_logical_emit_message(TRUE, 'dataflow', 'confirm');

-- name: take_fences
-- The fence is a lock: from here to COMMIT no other worker can take these ranges over.
-- What the commit relies on is there still: by a second fence, as it were, that is looked at and not taken.
SELECT dataflow.take_fences(%(range_ids)b, %(tokens)b, %(bundles)b,
                            %(watermarks_us)b, %(positions)b, %(are_finished)b,
                            %(relied_on_ids)b, %(relied_tokens)b, %(relied_bundles)b,
                            (%(cuts)b)[1]);

-- name: upsert_cells
-- Blind writes: the owner is the only writer, so nothing needs to be read.
INSERT INTO {cells} (computation_id, key_hash, cell_key, value)
SELECT * FROM unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(values)b)
ON CONFLICT (computation_id, key_hash, cell_key) DO UPDATE SET value = EXCLUDED.value;

-- name: delete_cells
-- State that is done with.
DELETE FROM {cells} c
USING unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b)
      AS gone (computation_id, key_hash, cell_key)
WHERE c.computation_id = gone.computation_id AND c.key_hash = gone.key_hash
  AND c.cell_key = gone.cell_key;

-- name: upsert_timers
-- Setting a timer that is set moves it.
INSERT INTO {timers} (computation_id, key_hash, cell_key, tag, domain, fire_us)
SELECT * FROM unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(tags)b, %(domains)b,
                     %(fires_us)b)
ON CONFLICT (computation_id, key_hash, cell_key, tag, domain)
DO UPDATE SET fire_us = EXCLUDED.fire_us;

-- name: delete_timers
-- Timers that have fired or were deleted.
DELETE FROM {timers} t
USING unnest(%(computation_ids)b, %(key_hashes)b, %(cell_keys)b, %(tags)b, %(domains)b)
      AS gone (computation_id, key_hash, cell_key, tag, domain)
WHERE t.computation_id = gone.computation_id AND t.key_hash = gone.key_hash
  AND t.cell_key = gone.cell_key AND t.tag = gone.tag AND t.domain = gone.domain;

-- name: advance_deliveries
-- What was delivered, in the same transaction as its effects: that is the deduplication.
-- A channel has one row, because only the owner of its receiver writes it, behind the fence: the row of the last
-- generation, with which a new one is made to conflict.
INSERT INTO {deliveries} AS d
    (receiver_range_id, sender_range_id, delivered, sender_token, sender_bundle, generation)
SELECT s.*, COALESCE(l.generation, s.delivered >> 6)
FROM unnest(%(receiver_range_ids)b, %(sender_range_ids)b, %(sequences)b, %(tokens)b, %(bundles)b)
     AS s (receiver, sender, delivered, token, bundle)
LEFT JOIN LATERAL (
    SELECT i.generation FROM {deliveries} i
    WHERE i.receiver_range_id = s.receiver AND i.sender_range_id = s.sender
    ORDER BY i.generation DESC LIMIT 1
) l ON TRUE
ON CONFLICT (receiver_range_id, sender_range_id, generation)
DO UPDATE SET delivered = EXCLUDED.delivered, sender_token = EXCLUDED.sender_token,
              sender_bundle = EXCLUDED.sender_bundle, generation = EXCLUDED.delivered >> 6
WHERE d.delivered < EXCLUDED.delivered;

-- name: insert_productions
-- Durable before they are sent.
INSERT INTO {productions}
    (sender_range_id, receiver_range_id, sequence, min_timestamp_us, payload)
SELECT * FROM unnest(%(sender_range_ids)b, %(receiver_range_ids)b, %(sequences)b,
                     %(min_timestamps_us)b, %(payloads)b);

-- name: acknowledge_productions
-- Their numbers must stay taken when the rows are gone, so the mark moves with the deletion.
-- As advance_deliveries.  What was acknowledged before is gone, and is not looked for.
WITH given AS MATERIALIZED (
    SELECT s.*, l.generation, l.acknowledged AS before
    FROM unnest(%(sender_range_ids)b, %(receiver_range_ids)b, %(sequences)b, %(tokens)b, %(bundles)b,
                %(are_remembered)b) AS s (sender, receiver, acknowledged, token, bundle, is_remembered)
    LEFT JOIN LATERAL (
        SELECT i.generation, i.acknowledged FROM {acknowledgements} i
        WHERE i.sender_range_id = s.sender AND i.receiver_range_id = s.receiver
        ORDER BY i.generation DESC LIMIT 1
    ) l ON TRUE
), noted AS (
    INSERT INTO {acknowledgements} AS a
        (sender_range_id, receiver_range_id, acknowledged, receiver_token, receiver_bundle,
         is_remembered, generation)
    SELECT sender, receiver, acknowledged, token, bundle, is_remembered,
           COALESCE(generation, acknowledged >> 6)
    FROM given
    ON CONFLICT (sender_range_id, receiver_range_id, generation)
    DO UPDATE SET acknowledged = EXCLUDED.acknowledged, receiver_token = EXCLUDED.receiver_token,
                  receiver_bundle = EXCLUDED.receiver_bundle,
                  is_remembered = EXCLUDED.is_remembered, generation = EXCLUDED.acknowledged >> 6
    WHERE a.acknowledged < EXCLUDED.acknowledged
)
DELETE FROM {productions} p
USING given g
CROSS JOIN LATERAL (
    SELECT i.ctid AS place FROM {productions} i
    WHERE i.sender_range_id = g.sender AND i.receiver_range_id = g.receiver
      AND i.sequence > COALESCE(g.before, -9223372036854775808) AND i.sequence <= g.acknowledged
    OFFSET 0
) l
WHERE p.ctid = l.place;

-- name: insert_late
-- Not in any result, but not lost either.
INSERT INTO {late_records}
    (job_id, transform, key, window_start_us, window_end_us, watermark_us, payload, count, contents)
SELECT * FROM unnest(%(job_ids)b, %(transforms)b, %(keys)b, %(window_starts_us)b,
                     %(window_ends_us)b, %(watermarks_us)b, %(payloads)b, %(counts)b,
                     %(contents)b);

-- name: insert_dead_letters
INSERT INTO {dead_letters}
    (job_id, stage, error, traceback, tries, timestamp_us, payload, contents)
SELECT * FROM unnest(%(job_ids)b, %(stages)b, %(errors)b, %(tracebacks)b, %(tries)b,
                     %(timestamps_us)b, %(payloads)b, %(contents)b);

-- name: insert_lineage
INSERT INTO {lineage}
    (job_id, version, kind, transform, key, key_hash, window_start_us, window_end_us, sign, count, pane_index, timing, accumulation,
     watermark_us, now_us, reason, origin, elements)
SELECT j.job_id, j.version, e.kind, e.transform, e.key, e.key_hash, e.window_start_us, e.window_end_us, e.sign, e.count,
       e.pane_index, e.timing, e.accumulation, e.watermark_us, e.now_us, e.reason, e.origin, e.elements
FROM unnest(%(job_ids)b, %(kinds)b, %(transforms)b, %(keys)b, %(key_hashes)b, %(window_starts_us)b,
            %(window_ends_us)b, %(signs)b, %(counts)b, %(pane_indexes)b, %(timings)b, %(accumulations)b, %(watermarks_us)b,
            %(nows_us)b, %(reasons)b, %(origins)b, %(elements)b)
     WITH ORDINALITY
     AS e (job_id, kind, transform, key, key_hash, window_start_us, window_end_us, sign, count, pane_index,
           timing, accumulation, watermark_us, now_us, reason, origin, elements, place)
JOIN dataflow.jobs j USING (job_id)
ORDER BY e.place;

-- name: recount_metrics
-- What ranges have counted in former attempts; the commit that this belongs to has all of it.
DELETE FROM {metrics} m WHERE m.range_id = ANY(%(range_ids)b);

-- name: append_metrics
INSERT INTO {metrics} (range_id, payload)
SELECT * FROM unnest(%(range_ids)b, %(payloads)b);

-- name: advance_signals
-- How far ranges have come with the job's signals; only when it has changed, and never back.
UPDATE dataflow.fences f
SET signal_number = s.number, signal_hash = s.hash
FROM unnest(%(range_ids)b, %(bundles)b, %(numbers)b, %(hashes)b)
     AS s (range_id, bundle, number, hash)
CROSS JOIN LATERAL (
    SELECT i.ctid AS place FROM dataflow.fences i
    WHERE i.range_id = s.range_id AND i.generation = s.bundle >> 6
    OFFSET 0
) l
WHERE f.ctid = l.place AND (f.signal_number, f.signal_hash) < (s.number, s.hash);

-- name: advance_percentiles
-- Percentile watermarks up to which ranges have fired; GREATEST passes over what was NULL.
UPDATE dataflow.fences f
SET percentile_us = GREATEST(f.percentile_us, s.percentile_us)
FROM unnest(%(range_ids)b, %(bundles)b, %(percentiles_us)b) AS s (range_id, bundle, percentile_us)
CROSS JOIN LATERAL (
    SELECT i.ctid AS place FROM dataflow.fences i
    WHERE i.range_id = s.range_id AND i.generation = s.bundle >> 6
    OFFSET 0
) l
WHERE f.ctid = l.place;

-- name: advance_firing
-- Watermarks by which ranges have fired some of what is due.
UPDATE dataflow.fences f
SET firing_us = GREATEST(f.firing_us, s.firing_us)
FROM unnest(%(range_ids)b, %(bundles)b, %(firing_us)b) AS s (range_id, bundle, firing_us)
CROSS JOIN LATERAL (
    SELECT i.ctid AS place FROM dataflow.fences i
    WHERE i.range_id = s.range_id AND i.generation = s.bundle >> 6
    OFFSET 0
) l
WHERE f.ctid = l.place;

-- name: remember_record_ids
-- New ids, in the same transaction as what their records cause.  The owner has asked before, so none is there.
INSERT INTO {record_ids} AS i (range_id, record_id, timestamp_us)
SELECT * FROM unnest(%(range_ids)b, %(record_ids)b, %(timestamps_us)b)
ON CONFLICT (range_id, record_id)
DO UPDATE SET timestamp_us = GREATEST(i.timestamp_us, EXCLUDED.timestamp_us);

-- name: append_journal
-- Changes of state, instead of writing each cell and timer.
INSERT INTO {journal} (range_id, bundle, part, cells, payload)
SELECT * FROM unnest(%(range_ids)b, %(bundles)b, %(parts)b, %(cells)b, %(payloads)b);

-- name: compact_journal
-- Cells and timers have it now.  What was deleted before is not looked for.
WITH given AS MATERIALIZED (
    SELECT s.range_id, s.compacted, l.place, l.compacted AS before
    FROM unnest(%(range_ids)b, %(bundles)b, %(compacted)b) AS s (range_id, bundle, compacted)
    CROSS JOIN LATERAL (
        SELECT f.ctid AS place, f.compacted FROM dataflow.fences f
        WHERE f.range_id = s.range_id AND f.generation = s.bundle >> 6
        OFFSET 0
    ) l
), noted AS (
    UPDATE dataflow.fences f SET compacted = g.compacted
    FROM given g
    WHERE f.ctid = g.place AND g.before < g.compacted
)
DELETE FROM {journal} w
USING given g
CROSS JOIN LATERAL (
    SELECT i.ctid AS place FROM {journal} i
    WHERE i.range_id = g.range_id AND i.bundle > g.before AND i.bundle <= g.compacted
    OFFSET 0
) l
WHERE w.ctid = l.place;

-- name: read_journal
-- Of ranges just taken over, oldest first.
SELECT w.range_id, w.payload
FROM dataflow.fences f JOIN {journal} w ON w.range_id = f.range_id AND w.bundle > f.compacted
WHERE f.range_id = ANY(%(range_ids)b)
ORDER BY w.range_id, w.bundle, w.part;

-- name: forget_record_ids
-- Ids that no record can have any more.
DELETE FROM {record_ids} i
USING unnest(%(range_ids)b, %(horizons_us)b) AS behind (range_id, horizon_us)
WHERE i.range_id = behind.range_id AND i.timestamp_us < behind.horizon_us;

-- name: known_record_ids
-- Those of some ids that a range has.
SELECT i.record_id FROM {record_ids} i
WHERE i.range_id = %(range_id)b AND i.record_id = ANY(%(record_ids)b);

-- name: read_record_ids
-- A page of a range's ids.
SELECT i.record_id, i.timestamp_us FROM {record_ids} i
WHERE i.range_id = %(range_id)b AND i.record_id > %(after)b
ORDER BY i.record_id
LIMIT %(count)b;

-- name: reshape_ranges
-- New bounds, under the fences of the ranges that get them; the one that keeps its place has no handover_with.
UPDATE dataflow.ranges r
SET first_hash = s.first_hash, last_hash = s.last_hash, handover_with = NULLIF(s.head, r.range_id)
FROM unnest(%(range_ids)b, %(first_hashes)b, %(last_hashes)b, %(heads)b)
     AS s (range_id, first_hash, last_hash, head)
WHERE r.range_id = s.range_id;

-- name: bear_ranges
-- A range that comes from another has come as far; its token is a new one.
WITH born AS (
    INSERT INTO dataflow.ranges (computation_id, range_index, first_hash, last_hash, handover_with)
    SELECT r.computation_id, s.range_index, s.first_hash, s.last_hash, s.head
    FROM unnest(%(range_indexes)b, %(first_hashes)b, %(last_hashes)b, %(heads)b)
         AS s (range_index, first_hash, last_hash, head)
    JOIN dataflow.ranges r ON r.range_id = s.head
    RETURNING range_id, handover_with
)
INSERT INTO dataflow.fences
    (range_id, owner, watermark_us, signal_number, signal_hash, percentile_us, firing_us)
SELECT b.range_id, f.owner, f.watermark_us, f.signal_number, f.signal_hash, f.percentile_us, f.firing_us
FROM born b JOIN dataflow.fences f ON f.range_id = b.handover_with;

-- name: end_handovers
-- From here on they may have owners of their own; one without keys has nothing left to do.
UPDATE dataflow.ranges
SET handover_with = NULL,
    retired_at = CASE WHEN first_hash IS NULL AND split IS NULL THEN now() END
WHERE range_id = ANY(%(range_ids)b);

-- name: read_in_handover
-- Who must have the same owner as some ranges.
WITH heads AS (
    SELECT COALESCE(handover_with, range_id) AS head FROM dataflow.ranges
    WHERE range_id = ANY(%(range_ids)b)
)
SELECT range_id FROM dataflow.ranges
WHERE range_id IN (SELECT head FROM heads) OR handover_with IN (SELECT head FROM heads)
ORDER BY range_id;

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
INSERT INTO dataflow.reigns (range_id, token, owner, last_bundle, successor, kind, reason)
SELECT range_id, token, owner, bundle, %(owner)s, %(kind)s, %(reason)s FROM dataflow.fences
WHERE range_id = ANY(%(range_ids)b);

-- name: move_tokens
-- From here on every commit of an earlier owner fails.
UPDATE dataflow.fences
SET token = nextval('dataflow.tokens'), owner = %(owner)s
WHERE range_id = ANY(%(range_ids)b);

-- name: read_reigns
-- The last bundle committed under tokens that were taken away.
SELECT r.range_id, r.token, r.last_bundle
FROM unnest(%(range_ids)b, %(tokens)b) AS asked (range_id, token)
JOIN dataflow.reigns r USING (range_id, token);

-- name: read_forgotten
-- Up to which token reigns are pruned.
SELECT range_id, forgotten_token FROM dataflow.fences WHERE range_id = ANY(%(range_ids)b);

-- name: insert_job
-- Under lock_catalog.
INSERT INTO dataflow.jobs (name, mode, fingerprint, signals, stored_format)
VALUES (%(name)s, %(mode)s, %(fingerprint)s, %(signals)s, %(stored_format)s)
RETURNING job_id;

-- name: add_partitions
-- Tables for what the job's commits will write.
SELECT dataflow.add_partitions(%(job_id)s);

-- name: reopen
-- What a job's triggers listen to may change with their code.  With another format of stored bytes it is another
-- version: workers of the former one get no range.
UPDATE dataflow.jobs
SET signals = %(signals)s, stored_format = %(stored_format)s,
    version = version + (stored_format <> %(stored_format)s)::int
WHERE job_id = %(job_id)s AND (signals <> %(signals)s OR stored_format <> %(stored_format)s);

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

-- name: add_splits
-- Ranges and fences of splits that a source has got; nobody owns them yet.
WITH added AS (
    INSERT INTO dataflow.ranges (computation_id, range_index, split)
    SELECT %(computation_id)s, %(known)s + s.ordinal - 1, s.split
    FROM unnest(%(splits)b) WITH ORDINALITY AS s (split, ordinal)
    ORDER BY s.ordinal
    RETURNING range_id
)
INSERT INTO dataflow.fences (range_id, watermark_us) SELECT range_id, %(watermark_us)s FROM added;

-- name: note_removed
-- Splits that their input does not have any more.  The first time counts.
UPDATE dataflow.ranges SET removed_at = now()
WHERE range_id = ANY(%(range_ids)b) AND removed_at IS NULL;

-- name: note_polls
WITH noted AS (
    INSERT INTO dataflow.split_polls
        (job_id, number, computations, range_indexes, polled_us, record_us, backlog_records, backlog_bytes,
         backlog_age_us, idle_since_us, are_finished)
    SELECT j.job_id, 1 + COALESCE((SELECT p.number FROM dataflow.split_polls p WHERE p.job_id = j.job_id
                                   ORDER BY p.number DESC LIMIT 1), 0),
           %(computations)b, %(range_indexes)b, %(polled_us)b, %(record_us)b, %(backlog_records)b,
           %(backlog_bytes)b, %(backlog_age_us)b, %(idle_since_us)b, %(are_finished)b
    FROM dataflow.jobs j WHERE j.name = %(name)s
    ON CONFLICT (job_id, number) DO NOTHING
    RETURNING job_id, number
)
DELETE FROM dataflow.split_polls p USING noted n
WHERE p.job_id = n.job_id AND p.number BETWEEN n.number - 4 AND n.number - 1;

-- name: read_polls
SELECT s.*
FROM dataflow.jobs j
CROSS JOIN LATERAL (SELECT * FROM dataflow.split_polls p WHERE p.job_id = j.job_id
                    ORDER BY p.number DESC LIMIT 1) l
CROSS JOIN LATERAL unnest(l.computations, l.range_indexes, l.polled_us, l.record_us, l.backlog_records,
                          l.backlog_bytes, l.backlog_age_us, l.idle_since_us, l.are_finished)
    AS s (computation, range_index, polled_us, record_us, backlog_records, backlog_bytes, backlog_age_us,
          idle_since_us, is_finished)
WHERE j.name = %(name)s;

-- name: read_job
-- The job itself.
SELECT job_id, mode, fingerprint, finished_at IS NOT NULL, signals, version, is_drained, stored_format
FROM dataflow.jobs WHERE name = %(name)s;

-- name: read_version
-- How often a job was updated.
SELECT version FROM dataflow.jobs WHERE job_id = %(job_id)s;

-- name: read_computations
-- Computations of a job, and what their state is made of.
SELECT name, state_shape FROM dataflow.computations WHERE job_id = %(job_id)s;

-- name: describe_computations
-- What the state of computations is made of; where that is known already it is the same, but for an update.
UPDATE dataflow.computations c
SET state_shape = s.state_shape
FROM unnest(%(names)b, %(state_shapes)b) AS s (name, state_shape)
WHERE c.job_id = %(job_id)s AND c.name = s.name
  AND c.state_shape IS DISTINCT FROM s.state_shape;

-- name: count_cells
-- How much state computations have.
SELECT computation_id, count(*) FROM {cells} GROUP BY computation_id;

-- name: count_journal
-- How much more is in the journal.
SELECT r.computation_id, sum(w.cells)::bigint
FROM {journal} w JOIN dataflow.ranges r USING (range_id)
GROUP BY r.computation_id;

-- name: count_timers
-- How many timers are set.
SELECT computation_id, count(*) FROM {timers} GROUP BY computation_id;

-- name: count_productions
-- What is in flight.
SELECT sender_range_id, receiver_range_id, count(*) FROM {productions}
GROUP BY sender_range_id, receiver_range_id;

-- name: delete_cells_of
-- State of computations that an update leaves behind, and so on.  Under the locks of all fences of the job.
DELETE FROM {cells} WHERE computation_id = ANY(%(computation_ids)b);

-- name: delete_timers_of
DELETE FROM {timers} WHERE computation_id = ANY(%(computation_ids)b);

-- name: delete_productions_of
-- From them and to them.
DELETE FROM {productions}
WHERE sender_range_id = ANY(%(range_ids)b) OR receiver_range_id = ANY(%(range_ids)b);

-- name: delete_deliveries_of
DELETE FROM {deliveries}
WHERE sender_range_id = ANY(%(range_ids)b) OR receiver_range_id = ANY(%(range_ids)b);

-- name: delete_acknowledgements_of
DELETE FROM {acknowledgements}
WHERE sender_range_id = ANY(%(range_ids)b) OR receiver_range_id = ANY(%(range_ids)b);

-- name: delete_journal_of
DELETE FROM {journal} WHERE range_id = ANY(%(range_ids)b);

-- name: delete_record_ids_of
DELETE FROM {record_ids} WHERE range_id = ANY(%(range_ids)b);

-- name: delete_fences_of
-- Whoever still owns one of these ranges finds no fence.
WITH reigns AS (
    DELETE FROM dataflow.reigns WHERE range_id = ANY(%(range_ids)b)
)
DELETE FROM dataflow.fences WHERE range_id = ANY(%(range_ids)b);

-- name: delete_computations
-- Their ranges go with them, by cascade.
DELETE FROM dataflow.computations WHERE computation_id = ANY(%(computation_ids)b);

-- name: unname_computations
-- Out of the way of new names: no other computation can have a name of a line feed and one of their numbers.
UPDATE dataflow.computations SET name = E'\n' || computation_id
WHERE computation_id = ANY(%(computation_ids)b);

-- name: rename_computations
UPDATE dataflow.computations c
SET name = s.name
FROM unnest(%(computation_ids)b, %(names)b) AS s (computation_id, name)
WHERE c.computation_id = s.computation_id;

-- name: update_job
-- From here on workers of the former version get no range.
UPDATE dataflow.jobs
SET fingerprint = %(fingerprint)s, signals = %(signals)s, stored_format = %(stored_format)s,
    version = version + 1
WHERE job_id = %(job_id)s;

-- name: lock_job
-- The same, for one sender of signals at a time: so numbers have no gaps, and become visible in their order.
SELECT job_id, mode, fingerprint, finished_at IS NOT NULL, signals
FROM dataflow.jobs WHERE name = %(name)s
FOR NO KEY UPDATE;

-- name: keep_job
-- The job's number; no other transaction can reset the job before this one ends, so its tables are there.
SELECT job_id FROM dataflow.jobs WHERE name = %(name)s FOR KEY SHARE;

-- name: read_jobs
-- A line for each job.  Its watermark is unknown while a split of a source has none.  Who runs it has its lock.
SELECT j.name, j.mode, j.finished_at IS NOT NULL, j.signals, count(f.range_id),
       count(f.range_id) FILTER (WHERE NOT f.is_finished AND j.finished_at IS NULL),
       CASE WHEN bool_and(f.watermark_us IS NOT NULL OR r.split IS NULL) THEN min(f.watermark_us) END,
       j.is_drained,
       (SELECT COALESCE(NULLIF(a.application_name, ''), 'somebody') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended(j.name, 7205759403792794)
        LIMIT 1),
       j.stored_format
FROM dataflow.jobs j
LEFT JOIN dataflow.computations c USING (job_id)
LEFT JOIN dataflow.ranges r USING (computation_id)
LEFT JOIN LATERAL (SELECT g.* FROM dataflow.fences g WHERE g.range_id = r.range_id
                   ORDER BY g.generation DESC LIMIT 1) f ON TRUE
GROUP BY j.job_id
ORDER BY j.name;

-- name: next_token
-- A number that no range has had as its token.
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

-- name: find_request
-- Whether an attempt that was cut off has been carried out.
SELECT number FROM dataflow.requests WHERE request = %(request)s;

-- name: insert_request
-- Under lock_job.
INSERT INTO dataflow.requests (job_id, number, verb, arguments, request)
SELECT %(job_id)s, COALESCE(max(number), 0) + 1, %(verb)s, %(arguments)s, %(request)s
FROM dataflow.requests WHERE job_id = %(job_id)s
RETURNING number;

-- name: read_requests
-- Requests to a job that its driver, or a process that waits for an answer, does not know yet.
SELECT r.number, r.verb, r.arguments, r.is_done, r.answer
FROM dataflow.jobs j JOIN dataflow.requests r USING (job_id)
WHERE j.name = %(name)s AND r.number > %(after)s
ORDER BY r.number;

-- name: answer_request
-- The first answer counts.
UPDATE dataflow.requests r
SET answered_at = now(), is_done = %(is_done)s, answer = %(answer)s
FROM dataflow.jobs j
WHERE j.job_id = r.job_id AND j.name = %(name)s AND r.number = %(number)s
  AND r.answered_at IS NULL;

-- name: read_ranges
-- Ranges of a job with the ids that commits use: every one, or those with these ids and the heads of their handovers.
-- The witness asks every minute, also while a snapshot keeps a million versions of fences: hence the last generation.
WITH asked AS (
    SELECT range_id, handover_with FROM dataflow.ranges
    WHERE range_id = ANY(COALESCE(%(range_ids)b::int4[], ARRAY(
        SELECT range_id FROM dataflow.ranges JOIN dataflow.computations USING (computation_id)
        WHERE job_id = %(job_id)s
    )))
)
SELECT c.name, r.range_index, r.range_id, r.computation_id, r.first_hash, r.last_hash, r.handover_with,
       r.split, f.token, f.bundle, f.owner, f.position, f.watermark_us, f.is_finished,
       f.signal_number, f.signal_hash, f.percentile_us, f.firing_us, r.removed_at IS NOT NULL
FROM dataflow.ranges r
JOIN dataflow.computations c USING (computation_id)
CROSS JOIN LATERAL (SELECT g.* FROM dataflow.fences g WHERE g.range_id = r.range_id
                    ORDER BY g.generation DESC LIMIT 1) f
WHERE c.job_id = %(job_id)s
  AND r.range_id IN (SELECT range_id FROM asked UNION SELECT handover_with FROM asked)
ORDER BY r.range_id;

-- name: find_job
-- The job's number, in a transaction that writes nothing.
SELECT job_id FROM dataflow.jobs WHERE name = %(name)s;

-- name: read_at_one_moment
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;

-- name: limit_statement
SELECT set_config('statement_timeout', %(timeout_ms)s, TRUE);

-- name: read_key
-- All that is stored of the keys with a hash, for people: one statement, so it is as of one instant.
WITH mine AS MATERIALIZED (
    SELECT f.range_id, f.watermark_us, f.compacted
    FROM dataflow.ranges r
    CROSS JOIN LATERAL (SELECT g.* FROM dataflow.fences g WHERE g.range_id = r.range_id
                        ORDER BY g.generation DESC LIMIT 1) f
    WHERE r.computation_id = %(computation_id)b AND %(key_hash)b BETWEEN r.first_hash AND r.last_hash
)
SELECT 0, m.range_id::bigint, m.watermark_us, NULL::bytea, NULL::bytea, NULL::text FROM mine m
UNION ALL
SELECT 1, NULL, NULL, c.cell_key, c.value, NULL
FROM mine CROSS JOIN {cells} c
WHERE c.computation_id = %(computation_id)b AND c.key_hash = %(key_hash)b
  AND substring(c.cell_key FROM 1 FOR 1) <> '\xfe'
UNION ALL
SELECT 2, NULL, t.fire_us, t.cell_key, t.tag, t.domain
FROM mine CROSS JOIN {timers} t
WHERE t.computation_id = %(computation_id)b AND t.key_hash = %(key_hash)b;

-- name: state_sizes
-- What the next owner of each key range would have to read in time: an estimate, as all of it is looked through.
SELECT r.range_id, (
    (SELECT coalesce(sum(octet_length(c.cell_key) + octet_length(c.value)), 0) FROM {cells} c
     WHERE c.computation_id = r.computation_id AND c.key_hash BETWEEN r.first_hash AND r.last_hash)
    + (SELECT coalesce(sum(octet_length(w.payload)), 0) FROM {journal} w WHERE w.range_id = r.range_id)
)::bigint
FROM dataflow.ranges r JOIN dataflow.computations o USING (computation_id)
JOIN dataflow.jobs j USING (job_id)
WHERE j.name = %(job)s AND r.first_hash IS NOT NULL;

-- name: read_journal_page
-- The next entries of a range, for people.
WITH mine AS MATERIALIZED (
    SELECT f.range_id, f.compacted FROM dataflow.fences f WHERE f.range_id = %(range_id)b
    ORDER BY f.generation DESC LIMIT 1
)
SELECT e.bundle, e.part, e.payload
FROM mine m CROSS JOIN LATERAL (
    SELECT w.bundle, w.part, w.payload FROM {journal} w
    WHERE w.range_id = m.range_id AND w.bundle > m.compacted AND (w.bundle, w.part) > (%(bundle)b, %(part)b)
    ORDER BY w.bundle, w.part LIMIT %(entries)b
) e
ORDER BY e.bundle, e.part;

-- name: read_cells
-- Some cells, to the owner of ranges: one statement, so tokens and cells are as of one instant.
-- The first row has the number of the ranges that are the owner's; rows without a hash have nothing else.
WITH held AS MATERIALIZED (
    SELECT count(*) AS ranges
    FROM unnest(%(range_ids)b, %(tokens)b) AS o (range_id, token)
    WHERE o.token = (SELECT f.token FROM dataflow.fences f WHERE f.range_id = o.range_id
                     ORDER BY f.generation DESC LIMIT 1)
)
SELECT h.ranges, c.key_hash, c.cell_key, c.value
FROM held h
LEFT JOIN (
    unnest(%(key_hashes)b, %(cell_keys)b) AS k (key_hash, cell_key)
    JOIN {cells} c ON c.computation_id = %(computation_id)b
        AND c.key_hash = k.key_hash AND c.cell_key = k.cell_key
) ON h.ranges = cardinality(%(range_ids)b);

-- name: read_cell_page
-- The next cells of a range, to its owner; those of one hash are not divided.  No pages: their keys begin with 254.
WITH held AS MATERIALIZED (
    SELECT l.range_id
    FROM (SELECT f.range_id, f.token FROM dataflow.fences f WHERE f.range_id = %(range_id)b
          ORDER BY f.generation DESC LIMIT 1) l
    WHERE l.token = %(token)b
)
SELECT h.range_id, p.key_hash, p.cell_key, p.value
FROM held h
LEFT JOIN LATERAL (
    SELECT c.key_hash, c.cell_key, c.value
    FROM dataflow.ranges r
    JOIN {cells} c ON c.computation_id = r.computation_id
        AND c.key_hash BETWEEN GREATEST(r.first_hash, %(first_hash)b) AND r.last_hash
    WHERE r.range_id = h.range_id AND substring(c.cell_key FROM 1 FOR 1) <> '\xfe'
    ORDER BY c.key_hash
    FETCH FIRST %(cells)b ROWS WITH TIES
) p ON TRUE;

-- name: read_timers
-- Timers of ranges, at takeover.
SELECT r.range_id, t.key_hash, t.cell_key, t.tag, t.domain, t.fire_us
FROM dataflow.ranges r
JOIN {timers} t ON t.computation_id = r.computation_id
    AND t.key_hash BETWEEN r.first_hash AND r.last_hash
WHERE r.range_id = ANY(%(range_ids)b);

-- name: read_deliveries
-- Channels into ranges.
SELECT receiver_range_id, sender_range_id, delivered
FROM {deliveries} WHERE receiver_range_id = ANY(%(range_ids)b);

-- name: read_acknowledgements
-- Channels out of ranges: numbers given out, whose productions are gone.
SELECT sender_range_id, receiver_range_id, acknowledged
FROM {acknowledgements} WHERE sender_range_id = ANY(%(range_ids)b);

-- name: read_acknowledgements_to
-- Channels into ranges, as their senders have them.
SELECT receiver_range_id, sender_range_id, acknowledged, receiver_token, receiver_bundle, is_remembered
FROM {acknowledgements}
WHERE receiver_range_id = ANY(%(range_ids)b) AND receiver_token IS NOT NULL;

-- name: read_cuts
-- How far ranges of the job had come by what others keep.
SELECT f.range_id, f.cut
FROM dataflow.ranges r
JOIN dataflow.computations c USING (computation_id)
CROSS JOIN LATERAL (SELECT g.range_id, g.cut FROM dataflow.fences g WHERE g.range_id = r.range_id
                    ORDER BY g.generation DESC LIMIT 1) f
WHERE c.job_id = %(job_id)s AND f.cut IS NOT NULL;

-- name: read_deliveries_from
-- Channels out of ranges, as their receivers have them: what was never durable here has a number all the same.
SELECT sender_range_id, receiver_range_id, delivered, sender_token, sender_bundle
FROM {deliveries} WHERE sender_range_id = ANY(%(range_ids)b);

-- name: read_productions
-- What is to be sent again, in order.
SELECT sender_range_id, receiver_range_id, sequence, min_timestamp_us, payload
FROM {productions} WHERE sender_range_id = ANY(%(range_ids)b)
ORDER BY sender_range_id, receiver_range_id, sequence;

-- name: finish_job
-- The first time counts.
UPDATE dataflow.jobs
SET is_drained = CASE WHEN finished_at IS NULL THEN %(is_drained)s ELSE is_drained END,
    finished_at = COALESCE(finished_at, now())
WHERE name = %(name)s
RETURNING is_drained;

-- name: delete_job
-- The catalog rows go with the job by cascade; from here on its tables belong to no job.
WITH mine AS MATERIALIZED (
    SELECT r.range_id
    FROM dataflow.computations c JOIN dataflow.ranges r USING (computation_id)
    WHERE c.job_id = %(job_id)s
), reigns AS (
    DELETE FROM dataflow.reigns WHERE range_id IN (SELECT range_id FROM mine)
), fences AS (
    DELETE FROM dataflow.fences WHERE range_id IN (SELECT range_id FROM mine)
), events AS (
    DELETE FROM dataflow.job_events WHERE job_id = %(job_id)s
)
DELETE FROM dataflow.jobs WHERE job_id = %(job_id)s;

-- name: find_partitions_of_nobody
-- Tables whose jobs are gone.
SELECT partition_name FROM dataflow.partitions WHERE job IS NULL ORDER BY partition_name;

-- name: hurry
-- In this one transaction: others that want the table would wait behind it.
SELECT set_config('lock_timeout', %(lock_timeout_ms)s, TRUE);

-- name: drop_partition
-- If it still belongs to no job.
SELECT dataflow.drop_partition(%(partition_name)s);

-- name: record_table
-- Who writes a table, and whether this job brought it into being.  Opening again does not forget.
INSERT INTO dataflow.result_tables AS t (job_id, schema_name, table_name, is_created)
VALUES (%(job_id)s, %(schema_name)s, %(table_name)s, %(is_created)s)
ON CONFLICT (job_id, schema_name, table_name)
DO UPDATE SET is_created = t.is_created OR EXCLUDED.is_created;

-- name: recorded_tables
-- Tables that a job has written to.
SELECT schema_name, table_name FROM dataflow.result_tables WHERE job_id = %(job_id)s;

-- name: forget_table
-- A table that a job does not write any more, and that is dropped.
DELETE FROM dataflow.result_tables
WHERE (job_id, schema_name, table_name) = (%(job_id)s, %(schema_name)s, %(table_name)s);

-- name: writers_of_table
-- The jobs that write to a table.
SELECT j.name
FROM dataflow.result_tables t JOIN dataflow.jobs j USING (job_id)
WHERE (t.schema_name, t.table_name) = (%(schema_name)s, %(table_name)s)
ORDER BY j.name;

-- name: read_result_tables
-- The tables that a job writes to, who else does, and whether they are there.
SELECT t.schema_name, t.table_name, t.is_created,
       ARRAY(SELECT o.name
             FROM dataflow.result_tables r JOIN dataflow.jobs o USING (job_id)
             WHERE r.job_id <> t.job_id
               AND (r.schema_name, r.table_name) = (t.schema_name, t.table_name)
             ORDER BY o.name),
       to_regclass(format('%%I.%%I', t.schema_name, t.table_name)) IS NOT NULL
FROM dataflow.jobs j JOIN dataflow.result_tables t USING (job_id)
WHERE j.name = %(name)s
ORDER BY t.schema_name, t.table_name;

-- name: read_table_names
-- The tables that jobs write to, with the names that people give them: the schema where nothing is found without it.
SELECT DISTINCT t.schema_name, t.table_name,
       CASE WHEN to_regclass(quote_ident(t.table_name)) = place.regclass THEN t.table_name
            ELSE t.schema_name || '.' || t.table_name END
FROM dataflow.result_tables t,
     LATERAL (SELECT to_regclass(quote_ident(t.schema_name) || '.' || quote_ident(t.table_name)) AS regclass) place
WHERE place.regclass IS NOT NULL;

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
SELECT l.late_record_id AS number, l.transform, l.key, l.window_start_us, l.window_end_us,
       l.watermark_us, l.payload, l.count, l.contents
FROM {late_records} l
ORDER BY l.late_record_id;

-- name: read_dead_letters
-- Dead letters of a job, oldest first.
SELECT d.dead_letter_id AS number, d.stage, d.error, d.traceback, d.tries, d.timestamp_us, d.payload,
       d.contents
FROM {dead_letters} d
ORDER BY d.dead_letter_id;

-- name: read_late_counts
-- How many records of a job came too late, for each transform that dropped any; with those that were purged.
SELECT each.transform, sum(each.count)::bigint AS count
FROM (
    SELECT l.transform, l.count FROM {late_records} l
    UNION ALL
    SELECT p.source, p.count FROM dataflow.purged p
    WHERE p.job_id = %(job_id)s AND p.kind = 'late'
) each
GROUP BY each.transform
ORDER BY each.transform;

-- name: read_metrics
-- What user code of a job has counted, oldest first.
SELECT m.payload FROM {metrics} m ORDER BY m.metrics_id;

-- name: take_metrics
-- Those of no range, if they are several; one that is made of them takes their place.
DELETE FROM {metrics} m
WHERE m.range_id IS NULL
  AND (SELECT count(*) FROM (SELECT FROM {metrics} n WHERE n.range_id IS NULL LIMIT 2) few) > 1
RETURNING m.metrics_id, m.payload;

-- name: read_lineage
-- The entries about one key, oldest first.
SELECT l.lineage_id, l.version, l.transform, l.key, l.window_start_us, l.window_end_us, l.sign, l.count, l.pane_index,
       l.timing, l.accumulation, l.watermark_us, l.now_us, l.reason, l.origin, l.elements
FROM {lineage} l
WHERE l.kind = %(kind)s AND l.transform = %(transform)s AND l.key_hash = %(key_hash)s
ORDER BY l.lineage_id;

-- name: purge_lineage
-- Some of the entries that may go.
WITH chosen AS (
    SELECT l.lineage_id FROM {lineage} l
    WHERE l.lineage_id <= %(up_to)s
      AND l.recorded_at <= now() - %(older_than_s)s * INTERVAL '1 second'
    ORDER BY l.lineage_id
    LIMIT %(rows)s
), gone AS (
    DELETE FROM {lineage} l USING chosen c
    WHERE l.lineage_id = c.lineage_id
    RETURNING l.lineage_id
)
SELECT count(*) FROM gone;

-- name: purge_late
-- Some of the late records that may go; how many they were stays.
WITH chosen AS (
    SELECT l.late_record_id FROM {late_records} l
    WHERE l.late_record_id <= %(up_to)s
      AND l.recorded_at <= now() - %(older_than_s)s * INTERVAL '1 second'
    ORDER BY l.late_record_id
    LIMIT %(rows)s
), gone AS (
    DELETE FROM {late_records} l USING chosen c
    WHERE l.late_record_id = c.late_record_id
    RETURNING l.transform, l.count
), counted AS (
    INSERT INTO dataflow.purged AS p (job_id, kind, source, count)
    SELECT %(job_id)s, 'late', g.transform, sum(g.count) FROM gone g GROUP BY g.transform
    ON CONFLICT (job_id, kind, source) DO UPDATE SET count = p.count + EXCLUDED.count
)
SELECT count(*) FROM gone;

-- name: purge_dead
-- As purge_late.
WITH chosen AS (
    SELECT d.dead_letter_id FROM {dead_letters} d
    WHERE d.dead_letter_id <= %(up_to)s
      AND d.recorded_at <= now() - %(older_than_s)s * INTERVAL '1 second'
    ORDER BY d.dead_letter_id
    LIMIT %(rows)s
), gone AS (
    DELETE FROM {dead_letters} d USING chosen c
    WHERE d.dead_letter_id = c.dead_letter_id
    RETURNING d.stage
), counted AS (
    INSERT INTO dataflow.purged AS p (job_id, kind, source, count)
    SELECT %(job_id)s, 'dead', g.stage, count(*) FROM gone g GROUP BY g.stage
    ON CONFLICT (job_id, kind, source) DO UPDATE SET count = p.count + EXCLUDED.count
)
SELECT count(*) FROM gone;

-- name: begin_replay_late
-- Up to the last late record that there is; a replay that has begun goes as far as it did then.
INSERT INTO dataflow.replays AS r (job_id, kind, up_to)
SELECT %(job_id)s, 'late', max(l.late_record_id) FROM {late_records} l HAVING count(*) > 0
ON CONFLICT (job_id, kind) DO UPDATE SET up_to = r.up_to
RETURNING up_to;

-- name: begin_replay_dead
-- As begin_replay_late.
INSERT INTO dataflow.replays AS r (job_id, kind, up_to)
SELECT %(job_id)s, 'dead', max(d.dead_letter_id) FROM {dead_letters} d HAVING count(*) > 0
ON CONFLICT (job_id, kind) DO UPDATE SET up_to = r.up_to
RETURNING up_to;

-- name: end_replay
-- The next replay goes as far as there is something by then.
DELETE FROM dataflow.replays r USING dataflow.jobs j
WHERE r.job_id = j.job_id AND j.name = %(name)s AND r.kind = %(kind)s;

-- name: find_retired_ranges
-- Ranges that were merged into others so long ago that no message names them any more.  The last index of a
-- computation stays, so that no other range is ever given it.
SELECT r.range_id
FROM dataflow.computations c
JOIN dataflow.ranges r USING (computation_id)
WHERE c.job_id = %(job_id)s
  AND r.range_id = ANY(%(range_ids)s)
  AND r.retired_at <= now() - %(older_than_s)s * INTERVAL '1 second'
  AND r.range_index < (SELECT max(o.range_index) FROM dataflow.ranges o
                       WHERE o.computation_id = r.computation_id)
  AND NOT EXISTS (SELECT FROM {productions} p
                  WHERE p.sender_range_id = r.range_id OR p.receiver_range_id = r.range_id);

-- name: delete_ranges
-- Under the locks of their fences, which go too.
DELETE FROM dataflow.ranges WHERE range_id = ANY(%(range_ids)b);

-- name: forget_owners
-- Owners that lost their ranges so long ago that none of their commits can be in doubt any more.
DELETE FROM dataflow.reigns g
USING dataflow.ranges r JOIN dataflow.computations c USING (computation_id)
WHERE g.range_id = r.range_id AND c.job_id = %(job_id)s
  AND g.ended_at <= now() - %(older_than_s)s * INTERVAL '1 second'
RETURNING g.range_id, g.token;

-- name: note_forgotten
-- Up to which token owners of ranges are forgotten.  Only if some are: it reads all versions of fences that a snapshot
-- keeps, since by a place or by a generation it would miss a fence that is committed meanwhile.
UPDATE dataflow.fences f SET forgotten_token = GREATEST(f.forgotten_token, s.token)
FROM unnest(%(range_ids)b, %(tokens)b) AS s (range_id, token)
WHERE f.range_id = s.range_id;

-- name: forget_signals
-- Signals that every range which listens has processed.  The last one stays, because the next is numbered after it.
WITH gone AS (
    DELETE FROM dataflow.signals s
    WHERE s.job_id = %(job_id)s
      AND s.sent_at <= now() - %(older_than_s)s * INTERVAL '1 second'
      AND s.number < (SELECT max(l.number) FROM dataflow.signals l WHERE l.job_id = %(job_id)s)
      AND s.number <= %(signals_up_to)s
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: forget_requests
-- Requests that were answered.  The last one stays, because the next is numbered after it.
WITH gone AS (
    DELETE FROM dataflow.requests q
    WHERE q.job_id = %(job_id)s
      AND q.answered_at <= now() - %(older_than_s)s * INTERVAL '1 second'
      AND q.number < (SELECT max(l.number) FROM dataflow.requests l WHERE l.job_id = %(job_id)s)
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: forget_events
-- All but the last ones, which are so many.
WITH gone AS (
    DELETE FROM dataflow.job_events e
    WHERE e.job_id = %(job_id)s AND e.event_id <= (
        SELECT l.event_id FROM dataflow.job_events l WHERE l.job_id = %(job_id)s
        ORDER BY l.event_id DESC OFFSET %(events_max)s LIMIT 1
    )
    RETURNING 1
)
SELECT count(*) FROM gone;

-- name: statistics
-- Row counts of a job by kind, named as in guards.STATISTICS.
WITH channels AS (
    SELECT sender_range_id, receiver_range_id FROM {productions}
    UNION
    SELECT sender_range_id, receiver_range_id FROM {acknowledgements}
    UNION
    SELECT sender_range_id, receiver_range_id FROM {deliveries}
)
SELECT
    (SELECT count(*) FROM {cells}) AS cells,
    (SELECT count(*) FROM {timers}) AS timers,
    (SELECT count(*) FROM {journal}) AS journal,
    (SELECT count(*) FROM {productions}) AS checkpoints,
    (SELECT count(*) FROM channels) AS channels,
    (SELECT count(*) FROM {record_ids}) AS record_ids,
    (SELECT count(*) FROM {late_records}) AS late,
    (SELECT count(*) FROM {dead_letters}) AS dead,
    (SELECT count(*)
     FROM dataflow.computations c
     JOIN dataflow.ranges r USING (computation_id)
     JOIN dataflow.fences f USING (range_id)
     WHERE c.job_id = %(job_id)s AND NOT f.is_finished) AS open_ranges;

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
-- The name by which other drivers find out which one has the lock.
SELECT set_config('application_name', %(name)s, FALSE);

-- name: old_snapshots
SELECT holder, application, role, state, EXTRACT(epoch FROM clock_timestamp() - since)::float8
FROM dataflow.snapshot_holders
WHERE since <= clock_timestamp() - %(older_than_s)s * INTERVAL '1 second'
ORDER BY since;

-- name: replication_slots
SELECT slot_name, active, wal_status, kept_bytes, keeps_rows FROM dataflow.slot_status ORDER BY slot_name;

-- name: vacuum_status
-- Of a job and of all jobs together.
SELECT coalesce(table_name, partition_name), bytes, live_rows, dead_rows, vacuum_after, is_autovacuumed,
       EXTRACT(epoch FROM clock_timestamp() - vacuumed_at)::float8, is_being_vacuumed
FROM dataflow.vacuum_status
WHERE job = %(job)s OR job IS NULL
ORDER BY dead_rows DESC, 1;

-- name: blocked_sessions
-- Sessions of this database that wait for locks of others, and what those run.
SELECT a.pid, b.pid, left(b.query, 200), EXTRACT(epoch FROM clock_timestamp() - a.query_start)::float8
FROM pg_stat_activity a
CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) AS h (pid)
JOIN pg_stat_activity b ON b.pid = h.pid
WHERE a.datname = current_database() AND a.query_start IS NOT NULL AND b.query IS NOT NULL
ORDER BY a.query_start;

-- name: is_alive
-- Whether the session is still there, and with it what it holds.
SELECT 1;

-- name: note_trouble
INSERT INTO dataflow.troubles (job_id, kind, place, headline, reason, count)
SELECT job_id, %(kind)s, %(place)s, %(headline)s, %(reason)s, %(count)s
FROM dataflow.jobs WHERE name = %(name)s
ON CONFLICT (job_id, kind, md5(place), md5(headline)) DO UPDATE
SET reason = EXCLUDED.reason, count = troubles.count + EXCLUDED.count, last_at = clock_timestamp();

-- name: forget_troubles
-- All but the latest of a job.
DELETE FROM dataflow.troubles t USING dataflow.jobs j
WHERE j.name = %(name)s AND t.job_id = j.job_id AND t.ctid NOT IN (
    SELECT l.ctid FROM dataflow.troubles l WHERE l.job_id = j.job_id
    ORDER BY l.last_at DESC, l.count DESC LIMIT %(most)s
);

-- name: read_troubles
SELECT t.kind, t.place, t.reason, t.count, t.first_at, t.last_at
FROM dataflow.jobs j JOIN dataflow.troubles t USING (job_id)
WHERE j.name = %(name)s
ORDER BY t.last_at DESC, t.place, t.reason;

-- name: add_lane
INSERT INTO dataflow.lanes AS l (job_id, sink, lane, outbox)
VALUES (%(job_id)s, %(sink)s, %(lane)s, %(outbox)s)
ON CONFLICT (job_id, sink, lane) DO UPDATE SET outbox = EXCLUDED.outbox
WHERE l.outbox IS DISTINCT FROM EXCLUDED.outbox;

-- name: note_lane_failure
INSERT INTO dataflow.lane_failures AS f (lane_id, reason) VALUES (%(lane_id)s, %(reason)s)
ON CONFLICT (lane_id) DO UPDATE
SET reason = EXCLUDED.reason, tries = f.tries + 1, last_at = clock_timestamp();

-- name: forget_lane_failure
DELETE FROM dataflow.lane_failures f USING dataflow.lanes l JOIN dataflow.jobs j USING (job_id)
WHERE f.lane_id = l.lane_id AND (j.name, l.sink, l.lane) = (%(job)s, %(sink)s, %(lane)s);

-- name: read_lanes
-- Lanes of a job's sinks, and what waits in them.
SELECT outbox, sink, lane, waiting, oldest, delivered, failing_since, failed_at, tries, reason,
       written_first, written_last, visible_at
FROM dataflow.sink_status WHERE job = %(name)s ORDER BY outbox, lane;

-- name: read_lane_names
SELECT lane_id, sink FROM dataflow.lanes WHERE job_id = %(job_id)s;

-- name: delete_lane
DELETE FROM dataflow.lanes WHERE lane_id = %(lane_id)s;

-- name: lock_lane
SELECT lane_id, writer FROM dataflow.lanes
WHERE job_id = %(job_id)s AND sink = %(sink)s AND lane = %(lane)s FOR NO KEY UPDATE;

-- name: lock_writer
-- The lane, if it was not forgotten and made anew meanwhile.
SELECT lane_id FROM dataflow.lanes WHERE writer = %(writer)s::uuid FOR NO KEY UPDATE;

-- name: read_lane
SELECT version, token, number, ids::text, upper(ids) - 1, floor_id, candidate_id, candidate_xid,
       written_first, written_last, visible_at
FROM dataflow.lane_batches WHERE lane_id = %(lane_id)s ORDER BY version DESC LIMIT 1;

-- name: read_lane_of
SELECT b.version, b.token, b.number, b.ids::text, upper(b.ids) - 1, b.floor_id, b.candidate_id, b.candidate_xid
FROM dataflow.lanes l JOIN dataflow.lane_batches b USING (lane_id)
WHERE l.writer = %(writer)s::uuid ORDER BY b.version DESC LIMIT 1;

-- name: write_lane
INSERT INTO dataflow.lane_batches
    (lane_id, version, token, number, ids, floor_id, candidate_id, candidate_xid, written_first, written_last,
     visible_at)
VALUES (%(lane_id)s, %(version)s, %(token)s, %(number)s, %(ids)s::int8multirange, %(floor_id)s,
        %(candidate_id)s, %(candidate_xid)s, %(written_first)s, %(written_last)s, %(visible_at)s);

-- name: forget_lane_versions
DELETE FROM dataflow.lane_batches WHERE lane_id = %(lane_id)s AND version < %(version)s;

-- name: running_transactions
-- All transactions before the first number have ended; all that will be given a number yet are not before the second.
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
FROM pg_current_snapshot() s;

-- name: note_event
INSERT INTO dataflow.job_events (job_id, kind, actor, who, subject, reason, details)
SELECT job_id, %(kind)s, %(actor)s, %(who)s, %(subject)s, %(reason)s, %(details)s::jsonb
FROM dataflow.jobs WHERE name = %(name)s;

-- name: note_reshaped
-- Of a commit: by the worker that has the range.
INSERT INTO dataflow.job_events (job_id, kind, actor, who, subject, reason, details)
SELECT c.job_id, (%(kinds)b)[1], 'worker', f.owner, (%(subjects)b)[1], (%(reasons)b)[1], (%(details)b)[1]::jsonb
FROM dataflow.ranges r JOIN dataflow.computations c USING (computation_id) JOIN dataflow.fences f USING (range_id)
WHERE r.range_id = ANY(%(range_ids)b);

-- name: read_events
SELECT e.kind, e.actor, e.who, e.subject, e.reason, e.details, e.at
FROM dataflow.readable_events e
WHERE e.job = %(name)s
ORDER BY e.at DESC
LIMIT %(most)s;

-- name: read_pending
-- What is durable and not acknowledged on each channel, and how old it is.
SELECT sender_range_id, receiver_range_id, count(*), min(min_timestamp_us),
       extract(epoch FROM clock_timestamp() - min(created_at))::float8
FROM {productions}
GROUP BY sender_range_id, receiver_range_id;

-- name: note_snapshot
WITH noted AS (
    INSERT INTO dataflow.job_snapshots (job_id, number, taken_at, document)
    SELECT j.job_id, 1 + COALESCE((SELECT p.number FROM dataflow.job_snapshots p WHERE p.job_id = j.job_id
                                   ORDER BY p.number DESC LIMIT 1), 0),
           dataflow.instant(%(taken_us)s), %(document)s::jsonb
    FROM dataflow.jobs j WHERE j.name = %(name)s
    ON CONFLICT (job_id, number) DO NOTHING
    RETURNING job_id, number
)
DELETE FROM dataflow.job_snapshots p USING noted n
WHERE p.job_id = n.job_id AND p.number BETWEEN n.number - 4 AND n.number - 1;

-- name: read_snapshot
SELECT s.document::text, (extract(epoch FROM s.taken_at) * 1000000)::bigint, extract(epoch FROM s.age)::float8
FROM dataflow.snapshot_status s WHERE s.job = %(name)s;
