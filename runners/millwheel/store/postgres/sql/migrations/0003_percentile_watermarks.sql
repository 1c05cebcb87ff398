-- Percentile watermarks: a second measure of event time, for triggers that do not wait for every record.

-- NULL for a range whose triggers follow the watermark itself.
ALTER TABLE dataflow.fences ADD COLUMN percentile_us bigint;
COMMENT ON COLUMN dataflow.fences.percentile_us IS
    'Percentile watermark that the range has acted on; only advances.';

-- NOT VALID: the rows that are there kept to a narrower rule, so nobody need read them all.
ALTER TABLE dataflow.timers DROP CONSTRAINT timers_domain_check;
ALTER TABLE dataflow.timers ADD CONSTRAINT timers_domain_check
    CHECK (domain IN ('event', 'processing', 'percentile')) NOT VALID;
