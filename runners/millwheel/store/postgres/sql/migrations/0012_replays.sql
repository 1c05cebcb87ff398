-- Late records and dead letters: what they contain, as text, and which of them are being replayed.

ALTER TABLE dataflow.late_records ADD COLUMN contents text NOT NULL DEFAULT '';
COMMENT ON COLUMN dataflow.late_records.contents IS
    'The record as Python writes it, shortened: for people, who unpickle nothing.';
ALTER TABLE dataflow.dead_letters ADD COLUMN contents text NOT NULL DEFAULT '';
COMMENT ON COLUMN dataflow.dead_letters.contents IS
    'The record as Python writes it, shortened: for people, who unpickle nothing.';

CREATE TABLE dataflow.replays (
    job_id integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    kind   text NOT NULL CHECK (kind IN ('late', 'dead')),
    up_to  bigint NOT NULL,
    PRIMARY KEY (job_id, kind)
);
COMMENT ON TABLE dataflow.replays IS
    'Up to which late record or dead letter a replay goes that has begun and is not done.';

CREATE OR REPLACE VIEW dataflow.readable_late_records AS
SELECT j.name AS job, l.recorded_at, l.transform, l.key,
       dataflow.instant(l.window_start_us) AS window_start,
       dataflow.instant(l.window_end_us) AS window_end,
       dataflow.instant(l.watermark_us) AS watermark, l.count,
       octet_length(l.payload) AS payload_bytes, l.contents
FROM dataflow.jobs j JOIN dataflow.late_records l USING (job_id);

CREATE OR REPLACE VIEW dataflow.readable_dead_letters AS
SELECT j.name AS job, d.recorded_at, d.stage, d.error, d.tries,
       dataflow.instant(d.timestamp_us) AS "timestamp",
       octet_length(d.payload) AS payload_bytes, d.traceback, d.contents
FROM dataflow.jobs j JOIN dataflow.dead_letters d USING (job_id);
