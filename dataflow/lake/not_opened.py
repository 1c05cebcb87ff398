"""TableNotOpenedError: what readers and writers of lakes are told where a table cannot be opened."""

from dataflow.errors import InputError


class TableNotOpenedError(InputError):
    """A table is not there, or is not reached; in the second case the error of the client is its cause."""
