-- Fences, and the commits of other ranges that a commit relies on, are one statement.

DROP FUNCTION dataflow.take_fences(integer[], bigint[], bigint[], bigint[], bytea[], boolean[]);
DROP FUNCTION dataflow.check_history(integer[], bigint[], bigint[]);

-- The first statement of every commit: takes every fence, one row after the other in the order given (the client
-- sorts), so that two commits never wait for each other in a circle.  Behind its fences, where nobody can commit in its
-- place, it makes sure that what the commit relies on has not been lost meanwhile; each statement of a function sees
-- what was committed before that statement began.
-- The SQLSTATEs belong to nobody else: classes from I to Z are free for use.
CREATE FUNCTION dataflow.take_fences(
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
    missing integer;
BEGIN
    FOR i IN 1 .. cardinality(range_ids) LOOP
        UPDATE dataflow.fences
        SET bundle = bundles[i],
            watermark_us = GREATEST(watermark_us, watermarks[i]),
            position = COALESCE(positions[i], position),
            is_finished = is_finished OR are_finished[i]
        WHERE range_id = range_ids[i] AND token = tokens[i] AND bundle = bundles[i] - 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'range % is not owned with token % at bundle %',
                range_ids[i], tokens[i], bundles[i] - 1
                USING ERRCODE = 'MW001', DETAIL = range_ids[i]::text;
        END IF;
    END LOOP;
    IF cardinality(relied_on_ids) = 0 THEN
        RETURN;
    END IF;
    SELECT m.range_id INTO missing
    FROM unnest(relied_on_ids, relied_tokens, relied_bundles) AS m (range_id, token, bundle)
    LEFT JOIN dataflow.fences f ON f.range_id = m.range_id
    WHERE NOT COALESCE(
        CASE WHEN f.token = m.token THEN m.bundle <= f.bundle
             ELSE m.token <= f.forgotten_token
                  OR m.bundle <= (SELECT r.last_bundle FROM dataflow.reigns r
                                  WHERE r.range_id = m.range_id AND r.token = m.token)
        END, FALSE)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a commit of range % is gone', missing
            USING ERRCODE = 'MW002', DETAIL = missing::text;
    END IF;
END
$$;
COMMENT ON FUNCTION dataflow.take_fences IS
    'Lock and advance the fences of a commit, or raise MW001 with the range id if one is lost; MW002 with the range id '
    'if a commit of another range that it relies on is gone.';
