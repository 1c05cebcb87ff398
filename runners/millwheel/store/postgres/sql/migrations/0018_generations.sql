-- What every commit changes is found at once, also while a session holds a snapshot of the database.
--
-- Fences and the ends of channels are rows that commits update in place.  While somebody holds a snapshot no former
-- version of them goes, and an index has all versions of a row under one key, so every commit would look through them
-- for the present one.  Hence a part of the key that moves on now and then: there are few versions under one key, the
-- present one is under the last, and most updates still stay in their page (HOT).

-- Commits take fences before anything else: this waits for those in flight, and others wait for this.
LOCK TABLE dataflow.fences IN EXCLUSIVE MODE;

ALTER TABLE dataflow.fences
    ADD COLUMN generation bigint NOT NULL DEFAULT 0,
    ADD COLUMN compacted bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN dataflow.fences.generation IS
    'A 64th of the bundle; part of the key, so that the present version is not looked for among all former ones.';
COMMENT ON COLUMN dataflow.fences.compacted IS
    'Entries of the journal up to this bundle are deleted; what a snapshot keeps of them is not looked through.';
UPDATE dataflow.fences SET generation = bundle >> 6 WHERE bundle >= 64;
ALTER TABLE dataflow.fences DROP CONSTRAINT fences_pkey, ADD PRIMARY KEY (range_id, generation);

-- Tables of jobs inherit the columns, but not the key.
-- Columns that are computed (GENERATED) would do as well, and cost each statement that writes them some microseconds.
ALTER TABLE dataflow.deliveries ADD COLUMN generation bigint NOT NULL DEFAULT 0;
ALTER TABLE dataflow.acknowledgements ADD COLUMN generation bigint NOT NULL DEFAULT 0;
UPDATE dataflow.deliveries SET generation = delivered >> 6 WHERE delivered >= 64;
UPDATE dataflow.acknowledgements SET generation = acknowledged >> 6 WHERE acknowledged >= 64;
COMMENT ON COLUMN dataflow.deliveries.generation IS 'A 64th of the number; as of fences.';
COMMENT ON COLUMN dataflow.acknowledgements.generation IS 'A 64th of the number; as of fences.';
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN
        SELECT k.conrelid::regclass AS name, k.conname,
               CASE WHEN 'dataflow.deliveries'::regclass IN (k.conrelid, i.inhparent)
                    THEN 'receiver_range_id, sender_range_id'
                    ELSE 'sender_range_id, receiver_range_id' END AS ends
        FROM pg_constraint k LEFT JOIN pg_inherits i ON i.inhrelid = k.conrelid
        WHERE k.contype = 'p'
          AND COALESCE(i.inhparent, k.conrelid)
              IN ('dataflow.deliveries'::regclass, 'dataflow.acknowledgements'::regclass)
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I, ADD PRIMARY KEY (%s, generation)',
                       part.name, part.conname, part.ends);
    END LOOP;
END
$$;

-- As before, but that each fence is looked for under its present key: of the ranges that are committed that is known,
-- of others it is the last one.  One by one, which is cheaper than a query over all of them.
CREATE OR REPLACE FUNCTION dataflow.take_fences(
    range_ids      integer[],
    tokens         bigint[],
    bundles        bigint[],
    watermarks     bigint[],
    positions      bytea[],
    are_finished   boolean[],
    relied_on_ids  integer[],
    relied_tokens  bigint[],
    relied_bundles bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    FOR i IN 1 .. cardinality(range_ids) LOOP
        UPDATE dataflow.fences
        SET bundle = bundles[i],
            generation = bundles[i] >> 6,
            watermark_us = GREATEST(watermark_us, watermarks[i]),
            position = COALESCE(positions[i], position),
            is_finished = is_finished OR are_finished[i]
        WHERE range_id = range_ids[i] AND generation = (bundles[i] - 1) >> 6
          AND token = tokens[i] AND bundle = bundles[i] - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'range % is not owned with token % at bundle %',
                range_ids[i], tokens[i], bundles[i] - 1
                USING ERRCODE = 'MW001', DETAIL = range_ids[i]::text;
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(relied_on_ids) LOOP
        SELECT l.token, l.bundle, l.forgotten_token INTO f FROM dataflow.fences l
        WHERE l.range_id = relied_on_ids[i]
        ORDER BY l.generation DESC LIMIT 1;
        CONTINUE WHEN f.token = relied_tokens[i] AND relied_bundles[i] <= f.bundle;
        -- Under another token it was made if that went so far, or is so old that nobody knows.
        CONTINUE WHEN f.token <> relied_tokens[i]
            AND (relied_tokens[i] <= f.forgotten_token
                 OR relied_bundles[i] <= (SELECT r.last_bundle FROM dataflow.reigns r
                                          WHERE r.range_id = relied_on_ids[i]
                                            AND r.token = relied_tokens[i]));
        RAISE EXCEPTION 'a commit of range % is gone', relied_on_ids[i]
            USING ERRCODE = 'MW002', DETAIL = relied_on_ids[i]::text;
    END LOOP;
END
$$;
