"""The transforms a pipeline is written with: what is computed."""
