-- Every job has tables of its own for what its commits write much of; views for people.
--
-- cells, timers, productions, deliveries, acknowledgements, late_records and dead_letters become empty
-- parents, by inheritance; job 7 has cells_7, timers_7 and so on.  Then a reset drops tables where it
-- deleted millions of rows, and neither the garbage, nor the vacuum, nor the bloat of one job is
-- another's.  fences, reigns, signals and the catalog stay as they are: few rows, small ones, and the
-- fence must outlive the tables that it guards.
--
-- By inheritance and not by PARTITION BY, because of locks.  Dropping or creating a partition of a
-- partitioned table takes ACCESS EXCLUSIVE on the parent: it waits for whoever reads any job, and makes
-- the commits of all jobs wait meanwhile (they look at the parent for the bounds of their partition).
-- Dropping a child of a plain table locks that child alone.  Nor do rows need a column for the job,
-- or commits a check of it: ids of computations and ranges belong to one job only.
--
-- Commits name their job's tables; the parents are for people, for views, and for what is to hold for
-- jobs to come: a new job's tables have the columns, the primary key and the other indexes, the storage
-- parameters and the grants that the parent has at that moment.

-- Commits take fences before anything else: this waits for those in flight, and others wait for this.
LOCK TABLE dataflow.fences IN EXCLUSIVE MODE;

-- For a migration to come that adds such a table: give it the constraint below, insert its name here,
-- and call add_partitions for each job that is there.
CREATE TABLE dataflow.partitioned_tables (
    table_name name PRIMARY KEY
);
COMMENT ON TABLE dataflow.partitioned_tables IS
    'Tables without rows of their own: each job has a table of this name with its number behind it.';
INSERT INTO dataflow.partitioned_tables VALUES
    ('cells'), ('timers'), ('productions'), ('deliveries'), ('acknowledgements'),
    ('late_records'), ('dead_letters');

CREATE VIEW dataflow.partitions AS
SELECT j.name AS job, p.table_name, c.relname AS partition_name
FROM dataflow.partitioned_tables p
JOIN pg_inherits i ON i.inhparent = to_regclass('dataflow.' || quote_ident(p.table_name))
JOIN pg_class c ON c.oid = i.inhrelid
LEFT JOIN dataflow.jobs j ON c.relname = p.table_name || '_' || j.job_id;
COMMENT ON VIEW dataflow.partitions IS
    'Tables of jobs.  Those without a job are waiting to be dropped, until nobody reads them.';

-- With the rights of its owner, because whoever may open a job need not have the right to create
-- tables in this schema; so it creates for jobs that exist, and nothing else.
CREATE FUNCTION dataflow.add_partitions(of_job integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job_name text := (SELECT j.name FROM dataflow.jobs j WHERE j.job_id = of_job);
    parent record;
    part text;
    given record;
    numbered name;
BEGIN
    IF job_name IS NULL THEN
        RAISE EXCEPTION 'there is no job %', of_job;
    END IF;
    FOR parent IN
        SELECT c.oid, c.relname, c.relowner, c.relacl, c.reloptions,
               pg_get_constraintdef(k.oid) AS primary_key
        FROM dataflow.partitioned_tables p
        JOIN pg_class c ON c.oid = to_regclass('dataflow.' || quote_ident(p.table_name))
        JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
        ORDER BY c.relname
    LOOP
        part := format('dataflow.%I', parent.relname || '_' || of_job);
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        EXECUTE format('CREATE TABLE %s (%s) INHERITS (dataflow.%I) %s', part, parent.primary_key,
                       parent.relname,
                       'WITH (' || array_to_string(parent.reloptions, ', ') || ')');
        EXECUTE format('COMMENT ON TABLE %s IS %L', part,
                       format('%s of job %s', parent.relname, job_name));
        FOR numbered IN
            SELECT attname FROM pg_attribute
            WHERE attrelid = parent.oid AND attidentity <> '' AND NOT attisdropped
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER %I ADD GENERATED ALWAYS AS IDENTITY',
                           part, numbered);
        END LOOP;
        FOR given IN
            SELECT pg_get_indexdef(indexrelid) AS definition, indisunique FROM pg_index
            WHERE indrelid = parent.oid AND NOT indisprimary
        LOOP
            EXECUTE format('CREATE %s INDEX ON %s%s',
                           CASE WHEN given.indisunique THEN 'UNIQUE' END, part,
                           substring(given.definition FROM ' USING .*'));
        END LOOP;
        FOR given IN
            SELECT a.privilege_type AS privilege, a.is_grantable, r.rolname
            FROM aclexplode(parent.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
            WHERE a.grantee <> parent.relowner
        LOOP
            EXECUTE format('GRANT %s ON %s TO %s%s', given.privilege, part,
                           COALESCE(quote_ident(given.rolname), 'PUBLIC'),
                           CASE WHEN given.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
        END LOOP;
    END LOOP;
END
$$;
COMMENT ON FUNCTION dataflow.add_partitions IS 'Create the tables of a job, as the parents are now.';

-- Likewise: it drops what belonged to a job that is gone, and nothing else.
CREATE FUNCTION dataflow.drop_partition(of_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM dataflow.partitions p
               WHERE p.partition_name = of_name AND p.job IS NULL) THEN
        EXECUTE format('DROP TABLE IF EXISTS dataflow.%I', of_name);
    END IF;
END
$$;
COMMENT ON FUNCTION dataflow.drop_partition IS
    'Drop a table of a job that is gone; does nothing to the tables of jobs that are there.';

-- Whoever migrates may be a superuser, and his rights are not to be had by calling these.
DO $$
DECLARE
    keeper text := (SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class
                    WHERE oid = 'dataflow.cells'::regclass);
BEGIN
    IF keeper <> quote_ident(current_user) THEN
        EXECUTE 'ALTER TABLE dataflow.partitioned_tables OWNER TO ' || keeper;
        EXECUTE 'ALTER VIEW dataflow.partitions OWNER TO ' || keeper;
        EXECUTE 'ALTER FUNCTION dataflow.add_partitions OWNER TO ' || keeper;
        EXECUTE 'ALTER FUNCTION dataflow.drop_partition OWNER TO ' || keeper;
    END IF;
END
$$;

-- All rows of a table will be of one job.
DROP INDEX dataflow.late_records_by_job;
DROP INDEX dataflow.dead_letters_by_job;

-- A page that is half empty takes a second version of every row that it has, so a bundle that overwrites
-- all of them at once leaves every new version beside the old one (HOT: no new index entry, and the
-- old one's place is found again without a vacuum).  Measured, with bundles that overwrite everything
-- once: at 60 (as before) 65 % of updates were HOT at first, and the table grew by half before it
-- settled; at 50 98 %, and it stayed as it was: smaller in the end, and as fast or faster.
ALTER TABLE dataflow.cells SET (fillfactor = 50);

-- What is there moves to where it belongs.  The session prices scans out, and this is one.
SET LOCAL enable_seqscan = on;
SET LOCAL enable_hashjoin = on;
DO $$
DECLARE
    number integer;
    owner_of record;
    latest bigint;
BEGIN
    FOR number IN SELECT job_id FROM dataflow.jobs ORDER BY job_id LOOP
        PERFORM dataflow.add_partitions(number);
        FOR owner_of IN
            SELECT * FROM (VALUES
                ('cells', 'computation_id', 'dataflow.computations'),
                ('timers', 'computation_id', 'dataflow.computations'),
                ('productions', 'sender_range_id', 'ranges'),
                ('deliveries', 'receiver_range_id', 'ranges'),
                ('acknowledgements', 'sender_range_id', 'ranges')
            ) AS o (table_name, column_name, kind)
        LOOP
            EXECUTE format(
                CASE WHEN owner_of.kind = 'ranges'
                THEN 'INSERT INTO dataflow.%I SELECT s.* FROM ONLY dataflow.%I s
                      WHERE s.%I IN (SELECT range_id FROM dataflow.ranges
                                     JOIN dataflow.computations USING (computation_id)
                                     WHERE job_id = %s)'
                ELSE 'INSERT INTO dataflow.%I SELECT s.* FROM ONLY dataflow.%I s
                      WHERE s.%I IN (SELECT computation_id FROM dataflow.computations
                                     WHERE job_id = %s)'
                END,
                owner_of.table_name || '_' || number, owner_of.table_name, owner_of.column_name,
                number);
        END LOOP;
        FOR owner_of IN
            SELECT * FROM (VALUES ('late_records', 'late_record_id'),
                                  ('dead_letters', 'dead_letter_id')
            ) AS o (table_name, column_name)
        LOOP
            EXECUTE format('INSERT INTO dataflow.%I OVERRIDING SYSTEM VALUE
                            SELECT s.* FROM ONLY dataflow.%I s WHERE s.job_id = %s',
                           owner_of.table_name || '_' || number, owner_of.table_name, number);
            EXECUTE format('SELECT max(%I) FROM dataflow.%I', owner_of.column_name,
                           owner_of.table_name || '_' || number) INTO latest;
            PERFORM setval(pg_get_serial_sequence(
                        format('dataflow.%I', owner_of.table_name || '_' || number),
                        owner_of.column_name), latest)
            WHERE latest IS NOT NULL;
        END LOOP;
    END LOOP;
END
$$;
TRUNCATE ONLY dataflow.cells, ONLY dataflow.timers, ONLY dataflow.productions,
    ONLY dataflow.deliveries, ONLY dataflow.acknowledgements, ONLY dataflow.late_records,
    ONLY dataflow.dead_letters;

-- A row in a parent would be one that its job never sees.  A program from before this migration is
-- stopped by it, too.
ALTER TABLE dataflow.cells ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.timers ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.productions ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.deliveries ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.acknowledgements
    ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.late_records ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;
ALTER TABLE dataflow.dead_letters ADD CONSTRAINT rows_are_in_tables_of_jobs CHECK (FALSE) NO INHERIT;

-- What follows is for people.  A view takes ACCESS SHARE, which no commit waits for.

-- Beyond the calendar of Python as infinity: the global window, and a watermark that is at its end.
CREATE OR REPLACE FUNCTION dataflow.instant(microseconds bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN microseconds <= -62135596800000000 THEN '-infinity'::timestamptz
        WHEN microseconds >= 253402300799999999 THEN 'infinity'::timestamptz
        ELSE to_timestamp(0) + (microseconds / 1000000) * INTERVAL '1 second'
             + (microseconds % 1000000) * INTERVAL '1 microsecond'
    END
$$;

-- One item of the CBOR that dataflow/coders.py writes, and where the next one begins.  Raises a
-- data exception at whatever else.
CREATE FUNCTION dataflow.read_key_part(
    encoded bytea, start integer, is_nested boolean, OUT shown text, OUT next integer
) LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    major   integer := get_byte(encoded, start) >> 5;
    info    integer := get_byte(encoded, start) & 31;
    -- Unsigned and of up to 64 bits, which a bigint does not hold.
    number  numeric := info;
    part    record;
    tag     integer;
    fraction_bits integer;
    exponent      integer;
    exponent_max  integer;
    fraction      double precision;
BEGIN
    next := start + 1;
    IF info >= 24 THEN
        IF info > 27 THEN
            RAISE EXCEPTION USING ERRCODE = 'data_exception';
        END IF;
        number := 0;
        FOR i IN 1 .. 1 << (info - 24) LOOP
            number := number * 256 + get_byte(encoded, next);
            next := next + 1;
        END LOOP;
    END IF;
    IF major = 0 THEN
        shown := number;
    ELSIF major = 1 THEN
        shown := -1 - number;
    ELSIF major = 2 THEN
        shown := '\x' || encode(substring(encoded FROM next + 1 FOR number::integer), 'hex');
        next := next + number::integer;
    ELSIF major = 3 THEN
        shown := convert_from(substring(encoded FROM next + 1 FOR number::integer), 'UTF8');
        shown := CASE WHEN is_nested THEN to_json(shown)::text ELSE shown END;
        next := next + number::integer;
    ELSIF major = 4 THEN
        -- Arrays of the encoding are pairs: what it is, and its content.
        tag := CASE WHEN number = 2 THEN get_byte(encoded, next) END;
        IF tag IN (1, 2) THEN
            SELECT * INTO part FROM dataflow.read_key_part(encoded, next + 1, TRUE);
            shown := CASE tag
                WHEN 1 THEN to_char(TIMESTAMP '1970-01-01'
                        + (part.shown::bigint / 1000000) * INTERVAL '1 second'
                        + (part.shown::bigint % 1000000) * INTERVAL '1 microsecond',
                    'YYYY-MM-DD HH24:MI:SS.US"+00"')
                ELSE to_char(DATE '0001-01-01' + (part.shown::integer - 1), 'YYYY-MM-DD')
            END;
            next := part.next;
        ELSIF tag = 0 AND get_byte(encoded, next + 1) >> 5 = 4 THEN
            SELECT * INTO part FROM dataflow.read_key_items(encoded, next + 1);
            shown := '(' || part.shown || ')';
            next := part.next;
        ELSE
            SELECT * INTO part FROM dataflow.read_key_items(encoded, start);
            shown := '[' || part.shown || ']';
            next := part.next;
        END IF;
    ELSIF major = 6 AND number IN (2, 3) AND get_byte(encoded, next) >> 5 = 2 THEN
        SELECT * INTO part FROM dataflow.read_key_part(encoded, next, TRUE);
        tag := number;
        number := 0;
        FOR i IN 3 .. length(part.shown) BY 2 LOOP
            number := number * 256 + get_byte(decode(substr(part.shown, i, 2), 'hex'), 0);
        END LOOP;
        shown := CASE tag WHEN 2 THEN number ELSE -1 - number END;
        next := part.next;
    ELSIF major = 7 AND info BETWEEN 20 AND 22 THEN
        shown := (ARRAY['false', 'true', 'null'])[info - 19];
    ELSIF major = 7 AND info BETWEEN 25 AND 27 THEN
        -- IEEE 754 of two, four and eight bytes.
        fraction_bits := (ARRAY[10, 23, 52])[info - 24];
        exponent_max := (ARRAY[31, 255, 2047])[info - 24];
        fraction := number % power(2::numeric, fraction_bits);
        exponent := div(number, power(2::numeric, fraction_bits)) % (exponent_max + 1);
        fraction := CASE
            WHEN exponent < exponent_max THEN
                (fraction + CASE WHEN exponent > 0 THEN power(2::float8, fraction_bits) ELSE 0 END)
                * power(2::float8, GREATEST(exponent, 1) - exponent_max / 2 - fraction_bits)
            WHEN fraction = 0 THEN 'Infinity'
            ELSE 'NaN'
        END;
        shown := CASE
            WHEN number >= (exponent_max + 1) * power(2::numeric, fraction_bits) THEN -fraction
            ELSE fraction
        END;
    ELSE
        RAISE EXCEPTION USING ERRCODE = 'data_exception';
    END IF;
END
$$;
COMMENT ON FUNCTION dataflow.read_key_part IS 'Part of decode_key.';

CREATE FUNCTION dataflow.read_key_items(
    encoded bytea, start integer, OUT shown text, OUT next integer
) LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    count integer := get_byte(encoded, start) & 31;
    parts text[] := '{}';
    part  record;
BEGIN
    next := start + 1;
    IF count >= 24 THEN
        -- The head of an array is that of a number with another first byte.
        SELECT * INTO part FROM dataflow.read_key_part(
            set_byte(encoded, start, count), start, TRUE);
        count := part.shown::integer;
        next := part.next;
    END IF;
    FOR i IN 1 .. count LOOP
        SELECT * INTO part FROM dataflow.read_key_part(encoded, next, TRUE);
        parts := parts || part.shown;
        next := part.next;
    END LOOP;
    shown := array_to_string(parts, ', ');
END
$$;
COMMENT ON FUNCTION dataflow.read_key_items IS 'Part of decode_key: what an array contains.';

CREATE FUNCTION dataflow.decode_key(encoded bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    part record;
BEGIN
    SELECT * INTO part FROM dataflow.read_key_part(encoded, 0, FALSE);
    IF part.next = length(encoded) THEN
        RETURN part.shown;
    END IF;
    RETURN '\x' || encode(encoded, 'hex');
EXCEPTION WHEN data_exception THEN
    RETURN '\x' || encode(encoded, 'hex');
END
$$;
COMMENT ON FUNCTION dataflow.decode_key IS
    'A key as text: texts as they are, in tuples in quotes; bytes, and what is no key, in hex.';

-- A cell's key begins with the bounds of its window, unless windows merge.  No instant that windows
-- may have begins with a byte with which a key of more than one byte could begin.
CREATE FUNCTION dataflow.has_window(cell_key bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT length(cell_key) > 16 AND get_byte(cell_key, 0) IN (0, 1, 2, 3, 255)
$$;

-- Starts of bounds count from 1; NULL where there are none.
CREATE FUNCTION dataflow.window_bound(encoded bytea, start integer) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN length(encoded) >= start + 7 THEN dataflow.instant(
        ('x' || encode(substring(encoded FROM start FOR 8), 'hex'))::bit(64)::bigint) END
$$;

CREATE FUNCTION dataflow.key_of_cell(cell_key bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT dataflow.decode_key(
        CASE WHEN dataflow.has_window(cell_key) THEN substring(cell_key FROM 17) ELSE cell_key END)
$$;

CREATE VIEW dataflow.readable_cells AS
SELECT j.name AS job, c.name AS computation, r.range_index,
       dataflow.key_of_cell(s.cell_key) AS key,
       CASE WHEN dataflow.has_window(s.cell_key)
            THEN dataflow.window_bound(s.cell_key, 1) END AS window_start,
       CASE WHEN dataflow.has_window(s.cell_key)
            THEN dataflow.window_bound(s.cell_key, 9) END AS window_end,
       octet_length(s.value) AS value_bytes
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.cells s USING (computation_id)
LEFT JOIN dataflow.ranges r ON r.computation_id = s.computation_id
    AND s.key_hash BETWEEN r.first_hash AND r.last_hash;
COMMENT ON VIEW dataflow.readable_cells IS
    'State.  A cell without a window has the state of its key in all windows, because they merge.';

CREATE VIEW dataflow.readable_timers AS
SELECT j.name AS job, c.name AS computation, r.range_index,
       dataflow.key_of_cell(t.cell_key) AS key,
       dataflow.window_bound(t.tag, 1) AS window_start,
       dataflow.window_bound(t.tag, 9) AS window_end,
       t.domain, dataflow.instant(t.fire_us) AS fires_at
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.timers t USING (computation_id)
LEFT JOIN dataflow.ranges r ON r.computation_id = t.computation_id
    AND t.key_hash BETWEEN r.first_hash AND r.last_hash;
COMMENT ON VIEW dataflow.readable_timers IS
    'Timers that are set.  fires_at is in event time, but for the domain processing.';

CREATE VIEW dataflow.readable_productions AS
SELECT j.name AS job, sc.name AS sender, s.range_index AS sender_index,
       rc.name AS receiver, r.range_index AS receiver_index, p.sequence,
       dataflow.instant(p.min_timestamp_us) AS holds_watermark_at,
       octet_length(p.payload) AS payload_bytes
FROM dataflow.jobs j
JOIN dataflow.computations sc USING (job_id)
JOIN dataflow.ranges s ON s.computation_id = sc.computation_id
JOIN dataflow.productions p ON p.sender_range_id = s.range_id
LEFT JOIN dataflow.ranges r ON r.range_id = p.receiver_range_id
LEFT JOIN dataflow.computations rc ON rc.computation_id = r.computation_id;
COMMENT ON VIEW dataflow.readable_productions IS
    'Bundles on their way: durable, and not acknowledged yet.';

CREATE VIEW dataflow.readable_late_records AS
SELECT j.name AS job, l.recorded_at, l.transform, l.key,
       dataflow.instant(l.window_start_us) AS window_start,
       dataflow.instant(l.window_end_us) AS window_end,
       dataflow.instant(l.watermark_us) AS watermark, l.count,
       octet_length(l.payload) AS payload_bytes
FROM dataflow.jobs j JOIN dataflow.late_records l USING (job_id);
COMMENT ON VIEW dataflow.readable_late_records IS
    'Records that came after the state of their window was gone.';

CREATE VIEW dataflow.readable_dead_letters AS
SELECT j.name AS job, d.recorded_at, d.stage, d.error, d.tries,
       dataflow.instant(d.timestamp_us) AS "timestamp",
       octet_length(d.payload) AS payload_bytes, d.traceback
FROM dataflow.jobs j JOIN dataflow.dead_letters d USING (job_id);
COMMENT ON VIEW dataflow.readable_dead_letters IS 'Records that make user code fail.';

CREATE VIEW dataflow.range_owners AS
SELECT j.name AS job, c.name AS computation, r.range_index, o.token, o.owner, o.last_bundle,
       o.ended_at
FROM dataflow.jobs j
JOIN dataflow.computations c USING (job_id)
JOIN dataflow.ranges r USING (computation_id)
JOIN (SELECT range_id, token, owner, bundle AS last_bundle, NULL::timestamptz AS ended_at
      FROM dataflow.fences
      UNION ALL
      SELECT range_id, token, owner, last_bundle, ended_at FROM dataflow.reigns) o USING (range_id);
COMMENT ON VIEW dataflow.range_owners IS
    'Who has had each range, and up to which bundle; whoever has it now has no ended_at.';

-- The numbers are those of lock_job_run, whose key Postgres shows in two halves.
CREATE VIEW dataflow.job_drivers AS
SELECT j.name AS job, substring(a.application_name FROM 'dataflow driver (\S+)') AS driver,
       a.backend_start AS since, a.pid AS session_pid
FROM dataflow.jobs j
CROSS JOIN LATERAL (SELECT hashtextextended(j.name, 7205759403792794) AS number) k
JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.classid::bigint = (k.number >> 32) & 4294967295
    AND l.objid::bigint = k.number & 4294967295
JOIN pg_stat_activity a ON a.pid = l.pid AND a.datname = current_database()
WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database());
COMMENT ON VIEW dataflow.job_drivers IS
    'Streaming jobs that are being run: host and process of the driver, and its session here.';

CREATE VIEW dataflow.table_status AS
SELECT p.job, COALESCE(p.table_name, c.relname) AS table_name, c.relname AS partition_name,
       pg_total_relation_size(c.oid) AS bytes,
       pg_stat_get_live_tuples(c.oid) AS live_rows,
       pg_stat_get_dead_tuples(c.oid) AS dead_rows,
       pg_stat_get_tuples_updated(c.oid) AS updates,
       round(100.0 * pg_stat_get_tuples_hot_updated(c.oid)
             / NULLIF(pg_stat_get_tuples_updated(c.oid), 0), 1) AS hot_percent,
       pg_stat_get_last_autovacuum_time(c.oid) AS last_autovacuum
FROM pg_class c
LEFT JOIN dataflow.partitions p ON p.partition_name = c.relname
WHERE c.relnamespace = 'dataflow'::regnamespace AND c.relkind = 'r'
  AND c.relname NOT IN (SELECT table_name FROM dataflow.partitioned_tables);
COMMENT ON VIEW dataflow.table_status IS
    'Size and health of every table with rows; those without a job are shared by all jobs.';
