-- How fresh sinks are: when the rows of the last batch were written, and since when they are visible there.

ALTER TABLE dataflow.lane_batches
    ADD COLUMN written_first timestamptz,
    ADD COLUMN written_last timestamptz,
    ADD COLUMN visible_at timestamptz;
COMMENT ON COLUMN dataflow.lane_batches.written_first IS
    'Of the last batch that the sink is known to have: when its first row came; null: it is not known.';
COMMENT ON COLUMN dataflow.lane_batches.written_last IS 'When its last row came.';
COMMENT ON COLUMN dataflow.lane_batches.visible_at IS 'Since when it is known that the sink has it.';

CREATE OR REPLACE VIEW dataflow.sink_status AS
SELECT j.name AS job, o.table_name AS outbox, s.sink, s.lane, s.waiting, s.oldest, s.delivered,
       s.failing_since, s.failed_at, s.tries, s.reason, s.written_first, s.written_last, s.visible_at
FROM dataflow.jobs j JOIN dataflow.result_tables o USING (job_id)
CROSS JOIN LATERAL (
    SELECT l.sink, coalesce(w.lane, l.lane) AS lane, coalesce(w.waiting, 0) AS waiting, w.oldest,
           b.number - (NOT isempty(b.ids))::integer AS delivered,
           f.since AS failing_since, f.last_at AS failed_at, f.tries, f.reason,
           b.written_first, b.written_last, b.visible_at
    FROM dataflow.waiting_in(o.table_name) w
    FULL JOIN (SELECT * FROM dataflow.lanes k WHERE k.job_id = j.job_id AND k.outbox = o.table_name) l
        ON l.lane = w.lane
    LEFT JOIN LATERAL (SELECT n.number, n.ids, n.written_first, n.written_last, n.visible_at
                       FROM dataflow.lane_batches n WHERE n.lane_id = l.lane_id
                       ORDER BY n.version DESC LIMIT 1) b ON true
    LEFT JOIN dataflow.lane_failures f ON f.lane_id = l.lane_id
) s
WHERE o.schema_name = 'dataflow_outbox';
COMMENT ON VIEW dataflow.sink_status IS
    'What waits in each lane of a sink and since when, the last batch that the sink has, when its rows were written and since when they are visible, and since when and why it fails.';
