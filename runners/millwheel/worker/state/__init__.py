"""The state of the ranges that a worker owns: in memory, in the journal and in the store."""
