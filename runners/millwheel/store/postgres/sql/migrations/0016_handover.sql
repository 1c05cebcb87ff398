-- The column of a range in handover gets the name that the code and docs/glossary.md have for it.

ALTER TABLE dataflow.ranges RENAME COLUMN tied_to TO handover_with;
ALTER INDEX dataflow.ranges_tied RENAME TO ranges_handover;
-- A view keeps the names of its columns when those of its tables change.
ALTER VIEW dataflow.range_status RENAME COLUMN tied_to TO handover_with;
