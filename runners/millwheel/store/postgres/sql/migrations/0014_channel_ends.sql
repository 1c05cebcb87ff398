-- Both ends of a channel say by which commit of the other end they have what they have of it; so a part of the database
-- that is at an earlier moment than the rest is found out.

-- Commits take fences before anything else: this waits for those in flight, and others wait for this.
LOCK TABLE dataflow.fences IN EXCLUSIVE MODE;

-- Tables of jobs inherit these.
ALTER TABLE dataflow.deliveries ADD COLUMN sender_token bigint, ADD COLUMN sender_bundle bigint;
COMMENT ON COLUMN dataflow.deliveries.sender_token IS
    'With sender_bundle: the sender''s commit by which the highest sequence was durable; NULL if it was not yet.';
ALTER TABLE dataflow.acknowledgements
    ADD COLUMN receiver_token bigint,
    ADD COLUMN receiver_bundle bigint,
    ADD COLUMN is_remembered boolean;
COMMENT ON COLUMN dataflow.acknowledgements.receiver_token IS
    'With receiver_bundle: the receiver''s commit that has what is acknowledged.';
COMMENT ON COLUMN dataflow.acknowledgements.is_remembered IS
    'Whether the receiver has written down, in deliveries, that it took it in.';

ALTER TABLE dataflow.fences ADD COLUMN forgotten_token bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN dataflow.fences.forgotten_token IS
    'Reigns up to this token are pruned: of commits under them nobody can say whether they were.';

-- The statement of a commit that makes sure that what it relies on has not been lost meanwhile.  Like that of
-- take_fences, the SQLSTATE belongs to nobody else.
CREATE FUNCTION dataflow.check_history(range_ids integer[], tokens bigint[], bundles bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    missing integer;
BEGIN
    SELECT m.range_id INTO missing
    FROM unnest(range_ids, tokens, bundles) AS m (range_id, token, bundle)
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
COMMENT ON FUNCTION dataflow.check_history IS
    'Raises MW002 with the range id unless ranges have made these commits.';
