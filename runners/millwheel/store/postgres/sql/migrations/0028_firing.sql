-- The watermark by which a range is firing: what came before it is late, though not all that is due has fired.

-- NULL for a range that has never fired only some of what was due.
ALTER TABLE dataflow.fences ADD COLUMN firing_us bigint;
COMMENT ON COLUMN dataflow.fences.firing_us IS
    'Watermark by which the range has fired some of what is due, where it has not fired all; only advances.';
