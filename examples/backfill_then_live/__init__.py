"""Years of history with the batch engine, and then the stream: one job, one code, one set of totals."""
