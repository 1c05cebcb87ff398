"""Groups that do not fit into memory, in files that no other process sees."""
