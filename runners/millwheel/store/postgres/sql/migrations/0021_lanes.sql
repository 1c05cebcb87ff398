-- Lanes of outboxes: who relays what waits for a sink, and how far the sink is.

CREATE TABLE dataflow.lanes (
    lane_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    sink    text    NOT NULL,
    lane    integer NOT NULL,
    writer  uuid    NOT NULL DEFAULT gen_random_uuid(),
    UNIQUE (job_id, sink, lane),
    UNIQUE (writer)
);
COMMENT ON TABLE dataflow.lanes IS
    'Parts of outboxes.  A row is locked by whoever takes a batch, and never changed, so that nothing grows.';
COMMENT ON COLUMN dataflow.lanes.sink IS 'The label of the transform that writes to the sink.';
COMMENT ON COLUMN dataflow.lanes.writer IS 'What the sink keeps the number of the lane under.';

-- Each change is a new row with the next version: a row that is overwritten again and again would be slow to read while
-- somebody holds a snapshot.
CREATE TABLE dataflow.lane_batches (
    lane_id       integer NOT NULL REFERENCES dataflow.lanes ON DELETE CASCADE,
    version       bigint  NOT NULL,
    token         bigint  NOT NULL,
    number        bigint  NOT NULL,
    ids           int8multirange NOT NULL,
    floor_id      bigint  NOT NULL,
    candidate_id  bigint  NOT NULL,
    candidate_xid bigint  NOT NULL,
    taken_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane_id, version)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE dataflow.lane_batches IS 'The state of each lane: the row with the highest version.';
COMMENT ON COLUMN dataflow.lane_batches.token IS 'Of the relay that has the lane; another one cannot take a batch.';
COMMENT ON COLUMN dataflow.lane_batches.number IS 'Of the batch in flight, or of the last one if there is none.';
COMMENT ON COLUMN dataflow.lane_batches.ids IS 'The rows of the batch in flight; empty: there is none.';
COMMENT ON COLUMN dataflow.lane_batches.floor_id IS
    'No row of the lane that is not in flight has this outbox_id or a lower one, and none ever will.';
COMMENT ON COLUMN dataflow.lane_batches.candidate_id IS
    'The floor, as soon as all transactions before candidate_xid have ended.';
