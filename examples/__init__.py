"""Pipelines to read and run, each file or folder on its own; every docstring describes the output.

Run them from the root of the repository: `python -m examples.<name>`.
They are not part of the installed package.
"""
