"""The backfill: history of a streaming job, read by the batch engine, and left in the store for the stream."""
