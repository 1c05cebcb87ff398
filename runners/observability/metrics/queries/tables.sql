-- Tables of the store, those of all jobs together: their size with indexes, and rows that a vacuum has not freed yet.
SELECT regexp_replace(c.relname, '_[0-9]+$', '') AS "table", sum(pg_total_relation_size(c.oid))::bigint AS bytes,
       sum(coalesce(s.n_dead_tup, 0))::bigint AS dead
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'dataflow'
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind = 'r'
GROUP BY 1
