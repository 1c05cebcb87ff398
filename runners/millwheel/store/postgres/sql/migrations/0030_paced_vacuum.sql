-- What a snapshot keeps is read by each vacuum, which cannot free it: ADR 0114.

-- A pause of the vacuum after so many pages that it reads.  These tables are small, so as a rule a vacuum of them takes a
-- fraction of a second all the same; while a session holds a snapshot of the database for long they are not, and a vacuum
-- every few seconds would read gigabytes for nothing.
-- Rows that are updated in place need little of it: most updates free what came before, as soon as they may.
-- Rows that come and go need it sooner after the snapshot has ended, since only a vacuum frees them.
--
-- Statistics are not collected of them: every statement finds their rows by keys, in one way.  From Postgres 17 on whoever
-- collects them pauses while it has a page locked, and commits would wait for that.
DO $$
DECLARE
    paced record;
BEGIN
    FOR paced IN
        SELECT t.name, p.delay_ms
        FROM (VALUES ('fences', 50), ('deliveries', 50), ('acknowledgements', 50),
                     ('journal', 20), ('productions', 20)) AS p (parent, delay_ms)
        CROSS JOIN LATERAL (
            SELECT format('dataflow.%I', p.parent)::regclass AS name
            UNION ALL
            SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = format('dataflow.%I', p.parent)::regclass
        ) t
    LOOP
        EXECUTE format(
            'ALTER TABLE %s SET (autovacuum_vacuum_cost_delay = %s, autovacuum_analyze_threshold = 2000000000)',
            paced.name, paced.delay_ms);
    END LOOP;
END
$$;
