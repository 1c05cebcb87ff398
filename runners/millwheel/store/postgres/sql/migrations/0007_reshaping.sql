-- Splits and merges of key ranges while their job runs.

-- No foreign key, as in all that commits write.
ALTER TABLE dataflow.ranges ADD COLUMN tied_to integer;
COMMENT ON COLUMN dataflow.ranges.tied_to IS
    'The range whose owner must own this one too, because there may be something on its way that is
addressed by the bounds that they had before a split or merge.';

CREATE INDEX ranges_tied ON dataflow.ranges (tied_to) WHERE tied_to IS NOT NULL;

CREATE OR REPLACE VIEW dataflow.range_status AS
SELECT j.name AS job, c.name AS computation, r.range_index, f.owner, f.token, f.bundle,
       dataflow.instant(f.watermark_us) AS watermark, f.is_finished,
       r.first_hash, r.last_hash, t.range_index AS tied_to
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.ranges r USING (computation_id)
JOIN dataflow.fences f USING (range_id)
LEFT JOIN dataflow.ranges t ON t.range_id = r.tied_to;
COMMENT ON VIEW dataflow.range_status IS
    'Every range: who owns it, how far it has come, and which hashes of keys it has (minus 2^63).';
