"""Runs user code over a bundle: calls, outputs that are checked, records that make it fail."""
