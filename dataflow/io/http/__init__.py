"""Requests of HTTP as input, and as output."""
