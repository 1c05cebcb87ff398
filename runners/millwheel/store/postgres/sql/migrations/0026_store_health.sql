-- What the server does for the tables of jobs: who keeps it from freeing rows, what it keeps for standbys, and whether it
-- gets to vacuum.

-- Whatever makes a vacuum keep versions of rows: sessions with a snapshot or that have written something, standbys that
-- report theirs, and prepared transactions.  A vacuum itself does not count.
CREATE VIEW dataflow.snapshot_holders AS
SELECT CASE a.backend_type WHEN 'walsender' THEN 'standby in session ' ELSE 'session ' END || a.pid AS holder,
       coalesce(a.application_name, '') AS application, coalesce(a.usename, '') AS role,
       coalesce(a.state, '') AS state, coalesce(a.xact_start, a.backend_start) AS since
FROM pg_stat_activity a
WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
  AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
  AND (a.datname = current_database() OR a.backend_type = 'walsender')
UNION ALL
SELECT 'prepared transaction ' || p.gid, '', p.owner, 'prepared', p.prepared
FROM pg_prepared_xacts p WHERE p.database = current_database();
COMMENT ON VIEW dataflow.snapshot_holders IS
    'Who keeps the server from freeing what was overwritten or deleted, and since when; of other roles only with pg_read_all_stats.';

CREATE VIEW dataflow.slot_status AS
SELECT s.slot_name, s.slot_type, s.active, coalesce(s.wal_status, '') AS wal_status,
       coalesce(pg_wal_lsn_diff(
           CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn
       ), 0)::bigint AS kept_bytes,
       s.xmin IS NOT NULL AS keeps_rows
FROM pg_replication_slots s;
COMMENT ON VIEW dataflow.slot_status IS
    'Replication slots of the server: how much of its log each keeps, and whether it keeps rows that were deleted.';

CREATE VIEW dataflow.vacuum_status AS
SELECT t.job, t.table_name, t.partition_name, t.bytes, t.live_rows, t.dead_rows,
       (coalesce((o.given ->> 'autovacuum_vacuum_threshold')::float8,
                 current_setting('autovacuum_vacuum_threshold')::float8)
        + coalesce((o.given ->> 'autovacuum_vacuum_scale_factor')::float8,
                   current_setting('autovacuum_vacuum_scale_factor')::float8)
          * greatest(c.reltuples, 0))::bigint AS vacuum_after,
       current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean
           AND coalesce((o.given ->> 'autovacuum_enabled')::boolean, TRUE) AS is_autovacuumed,
       greatest(pg_stat_get_last_autovacuum_time(c.oid), pg_stat_get_last_vacuum_time(c.oid)) AS vacuumed_at,
       EXISTS (SELECT FROM pg_stat_progress_vacuum v
               WHERE v.relid = c.oid AND v.datid = (SELECT d.oid FROM pg_database d
                                                    WHERE d.datname = current_database())) AS is_being_vacuumed
FROM dataflow.table_status t
JOIN pg_class c ON c.relname = t.partition_name AND c.relnamespace = 'dataflow'::regnamespace
CROSS JOIN LATERAL (SELECT jsonb_object_agg(p.option_name, p.option_value) AS given
                    FROM pg_options_to_table(c.reloptions) p) o;
COMMENT ON VIEW dataflow.vacuum_status IS
    'Dead rows of each table, from how many on the server vacuums it by itself, and when it was vacuumed last.';
