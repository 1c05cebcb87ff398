-- A job says in which format its stored bytes are: the code that has it reads this one, and what is older.

-- The default stands for "from before formats had numbers": no row is rewritten.
ALTER TABLE dataflow.jobs ADD COLUMN stored_format integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN dataflow.jobs.stored_format IS
    'Format of the bytes in cells, journal, productions, positions and letters: docs/stored-format.md.  0: from before format 1.';
