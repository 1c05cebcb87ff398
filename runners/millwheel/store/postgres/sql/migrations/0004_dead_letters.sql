-- Dead letters: records that user code cannot take.

CREATE TABLE dataflow.dead_letters (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         integer NOT NULL,
    recorded_at    timestamptz NOT NULL DEFAULT now(),
    stage          text NOT NULL,
    error          text NOT NULL,
    traceback      text NOT NULL,
    tries          integer NOT NULL,
    timestamp_us   bigint NOT NULL,
    payload        bytea NOT NULL
);
CREATE INDEX dead_letters_by_job ON dataflow.dead_letters (job_id);
COMMENT ON TABLE dataflow.dead_letters IS
    'Records that made user code fail whenever it was tried: not in any result, kept for replay.';
COMMENT ON COLUMN dataflow.dead_letters.stage IS 'The read or grouping whose record it is.';
COMMENT ON COLUMN dataflow.dead_letters.payload IS 'The pickled record as it came into the stage.';
