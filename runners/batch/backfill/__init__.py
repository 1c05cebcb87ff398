"""The backfill: what a stream begins with, read by the batch engine, and left in the store for the stream."""
