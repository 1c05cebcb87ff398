-- Signals: names that are sent to a running job from outside.

ALTER TABLE dataflow.jobs ADD COLUMN signals text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN dataflow.jobs.signals IS 'Names of the signals that the job listens to.';

CREATE TABLE dataflow.signals (
    job_id  integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    number  bigint NOT NULL,
    name    text NOT NULL,
    request bigint NOT NULL UNIQUE,
    sent_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (job_id, number)
);
COMMENT ON TABLE dataflow.signals IS
    'Signals sent to jobs.  To send one by hand: dataflow signal JOB NAME.';
COMMENT ON COLUMN dataflow.signals.number IS
    'From 1 without a gap for each job, in the order in which they become visible.';
COMMENT ON COLUMN dataflow.signals.request IS
    'Number of the attempt to send it: repeated after a lost answer it sends nothing twice.';

-- The defaults stand for "none": no row is rewritten.
ALTER TABLE dataflow.fences
    ADD COLUMN signal_number bigint NOT NULL DEFAULT 0,
    ADD COLUMN signal_hash bigint NOT NULL DEFAULT -9223372036854775808;
COMMENT ON COLUMN dataflow.fences.signal_number IS
    'The range has acted on the signals of its job up to this one; only advances.';
COMMENT ON COLUMN dataflow.fences.signal_hash IS
    'And on the next one in cells with a smaller key hash than this.';
