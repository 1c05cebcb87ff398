"""TableNotOpenedError: a table of a lake that is not there, or is not reached."""

from dataflow.errors import InputError


class TableNotOpenedError(InputError):
    """A table is not there, or is not reached; in the second case the error of the client is its cause."""
