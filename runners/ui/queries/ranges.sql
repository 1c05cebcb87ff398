-- Ranges as they were last committed, with the last poll of those that are splits.
SELECT r.computation, r.range_index, r.owner, r.bundle, r.watermark, r.is_finished, r.first_hash, r.last_hash,
       s.polled, s.record, s.idle_since, s.backlog_records, s.backlog_bytes
FROM dataflow.range_status r
LEFT JOIN dataflow.split_status s
    ON s.job = r.job AND s.computation = r.computation AND s.range_index = r.range_index
WHERE r.job = %(job)s
ORDER BY r.computation, r.range_index
