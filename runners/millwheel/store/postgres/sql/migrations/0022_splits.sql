-- Splits that come and go while a job runs, and when each was last asked for records.

ALTER TABLE dataflow.ranges ADD COLUMN removed_at timestamptz;
COMMENT ON COLUMN dataflow.ranges.removed_at IS
    'When it was found that the input does not have the split any more; what was not read of it then is lost.';

-- One row for all splits of a job, and each write is a new row with the next number, which deletes the one before: a row
-- that is overwritten every second would be slow to read while somebody holds a snapshot.
CREATE TABLE dataflow.split_polls (
    job_id          integer NOT NULL REFERENCES dataflow.jobs ON DELETE CASCADE,
    number          bigint NOT NULL,
    computations    text[] NOT NULL,
    range_indexes   integer[] NOT NULL,
    polled_us       bigint[] NOT NULL,
    record_us       bigint[] NOT NULL,
    backlog_records bigint[] NOT NULL,
    backlog_bytes   bigint[] NOT NULL,
    backlog_age_us  bigint[] NOT NULL,
    PRIMARY KEY (job_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE dataflow.split_polls IS
    'The last polls of the splits of running jobs, about once a second: the row with the highest number.';
COMMENT ON COLUMN dataflow.split_polls.polled_us IS 'When each split was asked, by the clock of its worker.';
COMMENT ON COLUMN dataflow.split_polls.record_us IS 'When it last had a record; null: not known.';

CREATE VIEW dataflow.split_status AS
SELECT j.name AS job, s.computation, s.range_index,
       dataflow.instant(s.polled_us) AS polled, dataflow.instant(s.record_us) AS record,
       s.backlog_records, s.backlog_bytes, s.backlog_age_us * INTERVAL '1 microsecond' AS backlog_age
FROM dataflow.jobs j
CROSS JOIN LATERAL (SELECT * FROM dataflow.split_polls p WHERE p.job_id = j.job_id
                    ORDER BY p.number DESC LIMIT 1) l
CROSS JOIN LATERAL unnest(l.computations, l.range_indexes, l.polled_us, l.record_us, l.backlog_records,
                          l.backlog_bytes, l.backlog_age_us)
    AS s (computation, range_index, polled_us, record_us, backlog_records, backlog_bytes, backlog_age_us);
COMMENT ON VIEW dataflow.split_status IS 'When each split of a source was last asked for records, and what it had.';
