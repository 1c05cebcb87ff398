"""Tables of Delta Lake and Apache Iceberg: written exactly once, and read by version or as they change."""
