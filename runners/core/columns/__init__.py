"""Columns of numbers: windows assigned, values folded and partials kept without a Python object for each."""
