"""Requests to a running job and work for it, from any process."""
