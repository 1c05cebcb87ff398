-- What waits for sinks, since when, and which lanes fail.

ALTER TABLE dataflow.lanes ADD COLUMN outbox text;
COMMENT ON COLUMN dataflow.lanes.outbox IS
    'The table of the sink in the schema dataflow_outbox; null until the lane is taken by a version that notes it.';

CREATE TABLE dataflow.lane_failures (
    lane_id integer     PRIMARY KEY REFERENCES dataflow.lanes ON DELETE CASCADE,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries   bigint      NOT NULL DEFAULT 1,
    reason  text        NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE dataflow.lane_failures IS
    'Lanes that cannot be sent now: since when, and why it failed the last time.  A row goes when its lane is sent again.';

-- An outbox that no job has opened since times are noted has none.
CREATE FUNCTION dataflow.waiting_in(of_outbox text)
RETURNS TABLE (lane bigint, waiting bigint, oldest timestamptz) LANGUAGE plpgsql STABLE AS $$
DECLARE
    found regclass := to_regclass(format('dataflow_outbox.%I', of_outbox));
    has_times boolean := EXISTS (SELECT FROM pg_attribute WHERE attrelid = found AND attname = 'dataflow_at');
BEGIN
    IF found IS NOT NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT dataflow_lane, count(*), %s FROM %s GROUP BY dataflow_lane',
            CASE WHEN has_times THEN 'min(dataflow_at)' ELSE 'null::timestamptz' END, found
        );
    END IF;
END $$;
COMMENT ON FUNCTION dataflow.waiting_in IS 'How many rows wait in each lane of an outbox, and since when.';

CREATE VIEW dataflow.sink_status AS
SELECT j.name AS job, o.table_name AS outbox, s.sink, s.lane, s.waiting, s.oldest, s.delivered,
       s.failing_since, s.failed_at, s.tries, s.reason
FROM dataflow.jobs j JOIN dataflow.result_tables o USING (job_id)
CROSS JOIN LATERAL (
    SELECT l.sink, coalesce(w.lane, l.lane) AS lane, coalesce(w.waiting, 0) AS waiting, w.oldest,
           b.number - (NOT isempty(b.ids))::integer AS delivered,
           f.since AS failing_since, f.last_at AS failed_at, f.tries, f.reason
    FROM dataflow.waiting_in(o.table_name) w
    FULL JOIN (SELECT * FROM dataflow.lanes k WHERE k.job_id = j.job_id AND k.outbox = o.table_name) l
        ON l.lane = w.lane
    LEFT JOIN LATERAL (SELECT n.number, n.ids FROM dataflow.lane_batches n WHERE n.lane_id = l.lane_id
                       ORDER BY n.version DESC LIMIT 1) b ON true
    LEFT JOIN dataflow.lane_failures f ON f.lane_id = l.lane_id
) s
WHERE o.schema_name = 'dataflow_outbox';
COMMENT ON VIEW dataflow.sink_status IS
    'What waits in each lane of a sink and since when, the last batch that the sink has, and since when and why it fails.';
