-- Replication slots of the server: how much of its log each keeps, and whether it keeps rows that were deleted.
SELECT slot_name, active, wal_status, kept_bytes, keeps_rows
FROM dataflow.slot_status
ORDER BY slot_name
