"""The store port and its two adapters, memory and Postgres."""
