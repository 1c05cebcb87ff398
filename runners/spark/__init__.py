"""What the Spark-backed runners share: the context, and nothing about semantics."""
