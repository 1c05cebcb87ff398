"""Groups that do not fit into memory, in files that nobody else sees."""
