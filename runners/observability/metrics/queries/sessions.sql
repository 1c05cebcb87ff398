-- The oldest transaction that keeps the server from freeing rows; of other users only with pg_read_all_stats.
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - o.since)), 0)::float8 AS oldest_s
FROM (
    SELECT coalesce(a.xact_start, a.backend_start) AS since
    FROM pg_stat_activity a
    WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
      AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
      AND (a.datname = current_database() OR a.backend_type = 'walsender')
    UNION ALL
    SELECT p.prepared FROM pg_prepared_xacts p WHERE p.database = current_database()
) o
