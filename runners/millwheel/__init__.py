"""The exactly-once core: MillWheel's computations, fences, deliveries and watermarks, with its truth in a store.

Knows no Spark, and no SQL outside ``store/postgres``.
"""
