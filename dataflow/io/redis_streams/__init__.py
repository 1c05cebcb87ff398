"""Streams of Redis as a source and a sink."""
