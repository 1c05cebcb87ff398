"""The command ``dataflow``: pipelines of the user's, what is in a store, and signals and requests to jobs."""

from runners.cli.command_line import main

__all__ = ["main"]
