-- Troubles: why workers of a job have ended, and wait.

CREATE TABLE dataflow.troubles (
    job_id   integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    kind     text NOT NULL,
    place    text NOT NULL,
    headline text NOT NULL,
    reason   text NOT NULL,
    count    bigint NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at  timestamptz NOT NULL DEFAULT now()
);
-- Texts can be longer than an index takes.
CREATE UNIQUE INDEX troubles_key
    ON dataflow.troubles (job_id, kind, md5(place), md5(headline));
COMMENT ON TABLE dataflow.troubles IS
    'Why workers of jobs have ended, and wait: the latest of each job.  For people: dataflow why JOB.';
COMMENT ON COLUMN dataflow.troubles.headline IS
    'The first line of the reason: with the kind and the place it says what is the same trouble.';

CREATE VIEW dataflow.readable_troubles AS
SELECT j.name AS job, t.kind, t.place, t.count, t.first_at, t.last_at, t.reason
FROM dataflow.jobs j JOIN dataflow.troubles t USING (job_id);
COMMENT ON VIEW dataflow.readable_troubles IS 'Why workers of jobs have ended, and wait.';
