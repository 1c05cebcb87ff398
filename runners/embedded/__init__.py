"""Java and Postgres without installing either: both come from wheels, extra `local`.

Nothing here knows Spark or the store: `java` answers with a directory, `postgres` with an address.
Nothing is downloaded at run time, and nothing listens on a network port.
"""
