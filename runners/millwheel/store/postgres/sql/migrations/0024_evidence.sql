-- Evidence: what the driver of a job knew a moment ago, when what is on its way was made, and what has happened.

-- One row for each job, about once a second; each write is a new row with the next number, which deletes the one before,
-- as in split_polls.  Not in the log of the server: what is lost in a crash is written again a second later.
CREATE UNLOGGED TABLE dataflow.job_snapshots (
    job_id     integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    number     bigint NOT NULL,
    taken_at   timestamptz NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    document   jsonb NOT NULL,
    PRIMARY KEY (job_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Of a few kilobytes that live for a second.
ALTER TABLE dataflow.job_snapshots ALTER COLUMN document SET STORAGE EXTERNAL;
COMMENT ON TABLE dataflow.job_snapshots IS
    'What drivers know of their jobs: the row with the highest number.  None after a crash of the server, until the driver '
    'writes the next one; cannot be read on a standby.';
COMMENT ON COLUMN dataflow.job_snapshots.taken_at IS 'By the clock of the driver; written_at is by that of the server.';
COMMENT ON COLUMN dataflow.job_snapshots.document IS
    'runners/observability/evidence/snapshot.py has its fields; its version counts their changes.';

CREATE VIEW dataflow.snapshot_status AS
SELECT j.name AS job, s.taken_at, s.written_at, clock_timestamp() - s.written_at AS age,
       s.document #>> '{driver,name}' AS driver, s.document #>> '{driver,phase}' AS phase, s.document
FROM dataflow.jobs j
CROSS JOIN LATERAL (SELECT * FROM dataflow.job_snapshots p WHERE p.job_id = j.job_id
                    ORDER BY p.number DESC LIMIT 1) s;
COMMENT ON VIEW dataflow.snapshot_status IS
    'What the driver of each job knew last, and how old that is; a driver that lives writes once a second.';

-- The default is that of now(), so no row is rewritten: those that are there seem to be from this migration.
ALTER TABLE dataflow.productions ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();
COMMENT ON COLUMN dataflow.productions.created_at IS 'When the commit began that it was made by.';

CREATE OR REPLACE VIEW dataflow.channel_status AS
SELECT j.name AS job, sc.name AS sender, s.range_index AS sender_index,
       rc.name AS receiver, r.range_index AS receiver_index,
       count(*) AS pending, min(p.sequence) AS first_sequence, max(p.sequence) AS last_sequence,
       dataflow.instant(min(p.min_timestamp_us)) AS holds_watermark_at, min(p.created_at) AS oldest
FROM dataflow.productions p
JOIN dataflow.ranges s ON s.range_id = p.sender_range_id
JOIN dataflow.computations sc ON sc.computation_id = s.computation_id
JOIN dataflow.jobs j USING (job_id)
JOIN dataflow.ranges r ON r.range_id = p.receiver_range_id
JOIN dataflow.computations rc ON rc.computation_id = r.computation_id
GROUP BY j.name, sc.name, s.range_index, rc.name, r.range_index;

CREATE OR REPLACE VIEW dataflow.readable_productions AS
SELECT j.name AS job, sc.name AS sender, s.range_index AS sender_index,
       rc.name AS receiver, r.range_index AS receiver_index, p.sequence,
       dataflow.instant(p.min_timestamp_us) AS holds_watermark_at,
       octet_length(p.payload) AS payload_bytes, p.created_at
FROM dataflow.jobs j
JOIN dataflow.computations sc USING (job_id)
JOIN dataflow.ranges s ON s.computation_id = sc.computation_id
JOIN dataflow.productions p ON p.sender_range_id = s.range_id
LEFT JOIN dataflow.ranges r ON r.range_id = p.receiver_range_id
LEFT JOIN dataflow.computations rc ON rc.computation_id = r.computation_id;

-- Since when a split has had nothing, by the word of its reader.
ALTER TABLE dataflow.split_polls ADD COLUMN idle_since_us bigint[], ADD COLUMN are_finished boolean[];
COMMENT ON COLUMN dataflow.split_polls.idle_since_us IS
    'The first of the polls since when its reader has said each time that the split is idle; null: it does not say so.';

CREATE OR REPLACE VIEW dataflow.split_status AS
SELECT j.name AS job, s.computation, s.range_index,
       dataflow.instant(s.polled_us) AS polled, dataflow.instant(s.record_us) AS record,
       s.backlog_records, s.backlog_bytes, s.backlog_age_us * INTERVAL '1 microsecond' AS backlog_age,
       dataflow.instant(s.idle_since_us) AS idle_since, s.is_finished
FROM dataflow.jobs j
CROSS JOIN LATERAL (SELECT * FROM dataflow.split_polls p WHERE p.job_id = j.job_id
                    ORDER BY p.number DESC LIMIT 1) l
CROSS JOIN LATERAL unnest(l.computations, l.range_indexes, l.polled_us, l.record_us, l.backlog_records,
                          l.backlog_bytes, l.backlog_age_us, l.idle_since_us, l.are_finished)
    AS s (computation, range_index, polled_us, record_us, backlog_records, backlog_bytes, backlog_age_us,
          idle_since_us, is_finished);
COMMENT ON VIEW dataflow.split_status IS
    'When each split of a source was last asked for records, what it had, and since when its reader says that it is idle.';

-- Who has taken a range over, and why: the end of a reign is a takeover.
ALTER TABLE dataflow.reigns ADD COLUMN successor text, ADD COLUMN kind text, ADD COLUMN reason text;
COMMENT ON COLUMN dataflow.reigns.successor IS 'The next owner; null: none (a commit was in doubt, or the job was updated), or not known.';
COMMENT ON COLUMN dataflow.reigns.kind IS 'What kind of event it was (readable_events).';

-- What has happened to jobs and is in no other table.  No foreign key, as some of it is written by commits.
CREATE TABLE dataflow.job_events (
    job_id   integer NOT NULL,
    event_id bigint GENERATED ALWAYS AS IDENTITY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind     text NOT NULL,
    actor    text NOT NULL,
    who      text,
    subject  text,
    reason   text NOT NULL,
    details  jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (job_id, event_id)
);
COMMENT ON TABLE dataflow.job_events IS
    'What has happened to jobs, with what it tells of in one transaction; inserted, and deleted when there are many.';
COMMENT ON COLUMN dataflow.job_events.actor IS 'driver, worker, or operator.';
COMMENT ON COLUMN dataflow.job_events.who IS 'The host and process, or the name of the worker.';
COMMENT ON COLUMN dataflow.job_events.subject IS 'What it happened to: ranges, or a slot; null: the job.';

CREATE VIEW dataflow.readable_events AS
SELECT j.name AS job, e.at, e.kind, e.actor, e.who, e.subject, e.reason, e.details
FROM dataflow.jobs j
CROSS JOIN LATERAL (
    SELECT v.at, v.kind, v.actor, v.who, v.subject, v.reason, v.details
    FROM dataflow.job_events v WHERE v.job_id = j.job_id
    UNION ALL
    -- All ranges that one worker has taken over at once, but for those that it had.
    SELECT g.ended_at, g.kind, 'worker', g.successor,
           string_agg(c.name || '[' || r.range_index || ']', ', ' ORDER BY c.name COLLATE "C", r.range_index),
           g.reason,
           jsonb_build_object('former', jsonb_object_agg(c.name || '[' || r.range_index || ']', g.owner))
    FROM dataflow.computations c
    JOIN dataflow.ranges r USING (computation_id)
    JOIN dataflow.reigns g USING (range_id)
    WHERE c.job_id = j.job_id AND g.successor IS DISTINCT FROM g.owner AND g.successor IS NOT NULL
    GROUP BY g.ended_at, g.successor, g.kind, g.reason
    UNION ALL
    SELECT q.requested_at, 'request', 'operator', NULL, NULLIF(array_to_string(q.arguments, ' '), ''), q.verb,
           jsonb_build_object('number', q.number, 'is_done', q.is_done, 'answer', q.answer)
    FROM dataflow.requests q WHERE q.job_id = j.job_id
) e;
COMMENT ON VIEW dataflow.readable_events IS
    'What has happened to jobs: starts, updates, takeovers, splits, failures, requests and ends, with who and why.';

-- Whoever may run jobs may keep what they leave here.
DO $$
DECLARE
    given record;
    added text;
BEGIN
    FOR given IN
        SELECT a.privilege_type AS privilege, r.rolname
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = 'dataflow.troubles'::regclass AND a.grantee <> c.relowner
    LOOP
        FOREACH added IN ARRAY ARRAY['job_snapshots', 'job_events', 'snapshot_status', 'readable_events'] LOOP
            EXECUTE format('GRANT %s ON dataflow.%I TO %s', given.privilege, added,
                           COALESCE(quote_ident(given.rolname), 'PUBLIC'));
        END LOOP;
    END LOOP;
END
$$;
