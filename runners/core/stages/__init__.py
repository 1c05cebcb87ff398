"""A pipeline cut into stages, and each stage as every engine runs it."""
