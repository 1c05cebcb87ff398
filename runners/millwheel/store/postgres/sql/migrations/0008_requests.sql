-- Requests: what people ask of a running job from outside.

ALTER TABLE dataflow.jobs ADD COLUMN is_drained boolean NOT NULL DEFAULT FALSE;
COMMENT ON COLUMN dataflow.jobs.is_drained IS
    'Finished because somebody has asked its sources to end where they were.';

CREATE TABLE dataflow.requests (
    job_id       integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    number       bigint NOT NULL,
    verb         text NOT NULL,
    arguments    text[] NOT NULL,
    request      bigint NOT NULL UNIQUE,
    requested_at timestamptz NOT NULL DEFAULT now(),
    answered_at  timestamptz,
    is_done      boolean,
    answer       text,
    PRIMARY KEY (job_id, number),
    CHECK ((answered_at IS NULL) = (is_done IS NULL) AND (is_done IS NULL) = (answer IS NULL))
);
COMMENT ON TABLE dataflow.requests IS
    'What people have asked of jobs, and what has come of it.  To ask by hand: dataflow --help.';
COMMENT ON COLUMN dataflow.requests.number IS
    'From 1 without a gap for each job, in the order in which they become visible.';
COMMENT ON COLUMN dataflow.requests.request IS
    'Number of the attempt to send it: repeated after a lost answer it asks nothing twice.';
COMMENT ON COLUMN dataflow.requests.answer IS
    'NULL until a driver of the job, or its end, has answered.';

CREATE VIEW dataflow.readable_requests AS
SELECT j.name AS job, r.number, r.verb, r.arguments, r.requested_at, r.answered_at, r.is_done,
       r.answer
FROM dataflow.jobs j JOIN dataflow.requests r USING (job_id);
COMMENT ON VIEW dataflow.readable_requests IS
    'What people have asked of jobs; without answered_at it is still to be carried out.';
