"""A pipeline cut into stages, and the execution of each stage, the same for every engine."""
