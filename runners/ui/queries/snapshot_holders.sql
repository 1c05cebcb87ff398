-- Who has kept the database for a minute or longer from freeing what was overwritten or deleted.
SELECT holder, application, role, state, (EXTRACT(epoch FROM clock_timestamp() - since))::float8 AS age_s
FROM dataflow.snapshot_holders
WHERE since <= clock_timestamp() - INTERVAL '1 minute'
ORDER BY since
