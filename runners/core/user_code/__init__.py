"""Runs user code over a bundle: calls it, checks its outputs, and isolates records on which it fails."""
