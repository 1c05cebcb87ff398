-- A job can go over to a new version of its pipeline.

-- The defaults stand for "none" and "not known": no row is rewritten.
ALTER TABLE dataflow.jobs ADD COLUMN version integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN dataflow.jobs.version IS
    'How often the job was updated; whoever runs another version gets no range.';

ALTER TABLE dataflow.computations ADD COLUMN state_shape text;
COMMENT ON COLUMN dataflow.computations.state_shape IS
    'What the state is made of, as JSON: code with another shape cannot read it.  NULL: not known.';
