"""Tables of Postgres as sources: the rows of a table or query, and the changes of a table by logical replication."""
