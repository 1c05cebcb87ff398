"""Sinks that come with the SDK: their writers."""
