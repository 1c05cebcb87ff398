-- Where rows of tables and panes come from, of jobs that record it (the option lineage).

-- Rows are inserted with the commits that they tell of, and never updated.
CREATE TABLE dataflow.lineage (
    lineage_id      bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          integer NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    version         integer NOT NULL,
    kind            text    NOT NULL,
    transform       text    NOT NULL,
    key             text    NOT NULL,
    key_hash        bigint  NOT NULL,
    window_start_us bigint  NOT NULL,
    window_end_us   bigint  NOT NULL,
    sign            integer NOT NULL,
    count           bigint  NOT NULL,
    pane_index      integer NOT NULL,
    timing          text    NOT NULL,
    accumulation    text    NOT NULL,
    watermark_us    bigint  NOT NULL,
    now_us          bigint  NOT NULL,
    reason          text    NOT NULL,
    origin          text    NOT NULL,
    elements        text    NOT NULL
);
CREATE INDEX lineage_by_key ON dataflow.lineage (transform, key_hash);
COMMENT ON TABLE dataflow.lineage IS 'What groupings were given, which panes they emitted, and which rows came of these.';
COMMENT ON COLUMN dataflow.lineage.version IS 'Of the job, when it was recorded: each update has the next one.';
COMMENT ON COLUMN dataflow.lineage.kind IS 'input: elements for a grouping; pane: a window has fired; row: of a table.';
COMMENT ON COLUMN dataflow.lineage.transform IS 'The grouping; of a row, its table.';
COMMENT ON COLUMN dataflow.lineage.key IS 'As Python writes it; of a row, a JSON array of the columns that identify it.';
COMMENT ON COLUMN dataflow.lineage.sign IS '1: emitted; -1: retracted.';
COMMENT ON COLUMN dataflow.lineage.count IS 'How many elements; of a pane, how many had come since the one before.';
COMMENT ON COLUMN dataflow.lineage.origin IS 'JSON: the split and position, or the pane, that it was made of.';
COMMENT ON COLUMN dataflow.lineage.elements IS 'JSON: the elements as text, where the job records them.';

-- As migration 5 asks for: each job has its own.
ALTER TABLE dataflow.lineage ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
INSERT INTO dataflow.partitioned_tables VALUES ('lineage');
DO $$
DECLARE
    keeper text := (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
                    WHERE oid = 'dataflow.partitioned_tables'::regclass);
    number integer;
BEGIN
    IF keeper <> quote_ident(current_user) THEN
        EXECUTE 'ALTER TABLE dataflow.lineage OWNER TO ' || keeper;
    END IF;
    FOR number IN SELECT job_id FROM dataflow.jobs ORDER BY job_id LOOP
        PERFORM dataflow.add_partitions(number);
    END LOOP;
END
$$;

CREATE VIEW dataflow.readable_lineage AS
SELECT j.name AS job, l.lineage_id, l.recorded_at, l.version, l.kind, l.transform, l.key, l.sign, l.count, l.pane_index,
       l.timing, l.accumulation, l.reason, dataflow.instant(l.window_start_us) AS window_start,
       dataflow.instant(l.window_end_us) AS window_end,
       dataflow.instant(l.watermark_us) AS watermark, l.origin, l.elements
FROM dataflow.jobs j JOIN dataflow.lineage l USING (job_id);
COMMENT ON VIEW dataflow.readable_lineage IS 'Where rows of tables and panes come from; dataflow explain-row.';
