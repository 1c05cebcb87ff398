"""Java and Postgres without installing either: both come from wheels, extra `local`.

Nothing here knows Spark or the store: `java` returns a directory, `postgres` an address.
Nothing is downloaded at run time, and nothing listens on a network port.
"""
