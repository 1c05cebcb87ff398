"""What a stream does as ranges, workers, keys, backlog and faults grow; the command is `benchmarks.stream_scale`."""
