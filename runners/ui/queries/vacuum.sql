-- Dead rows of the tables of a job and of all jobs together, and whether the server vacuums them.
SELECT coalesce(table_name, partition_name) AS name, bytes, live_rows, dead_rows, vacuum_after, is_autovacuumed,
       (EXTRACT(epoch FROM clock_timestamp() - vacuumed_at))::float8 AS vacuumed_age_s, is_being_vacuumed
FROM dataflow.vacuum_status
WHERE job = %(job)s OR job IS NULL
ORDER BY dead_rows DESC, name
