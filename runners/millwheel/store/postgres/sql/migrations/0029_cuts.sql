-- How far all ranges of a job had come, kept with the fences of a commit in which partials went from range to range.

-- NULL for a range that has never been in such a commit.
ALTER TABLE dataflow.fences ADD COLUMN cut bytea;
COMMENT ON COLUMN dataflow.fences.cut IS
    'Number, token and bundle (int4, int8, int8, little-endian) of each range of the job, as of the last commit of this '
    'range that took in what another one of its ranges had made.';

-- As before; whoever knows nothing of cuts leaves them as they are.
DROP FUNCTION dataflow.take_fences(integer[], bigint[], bigint[], bigint[], bytea[], boolean[], integer[], bigint[],
                                   bigint[]);
CREATE FUNCTION dataflow.take_fences(
    range_ids      integer[],
    tokens         bigint[],
    bundles        bigint[],
    watermarks     bigint[],
    positions      bytea[],
    are_finished   boolean[],
    relied_on_ids  integer[],
    relied_tokens  bigint[],
    relied_bundles bigint[],
    new_cut        bytea DEFAULT NULL
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
            is_finished = is_finished OR are_finished[i],
            cut = COALESCE(new_cut, cut)
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
COMMENT ON FUNCTION dataflow.take_fences IS
    'Lock and advance the fences of a commit, or raise MW001 with the range id if one is lost; MW002 with the range id '
    'if a commit of another range that it relies on is gone.';
