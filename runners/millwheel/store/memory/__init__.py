"""The store port in one process."""
