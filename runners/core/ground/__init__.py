"""The values that the rest of the core uses: bundles, cells, timers, keys as bytes, dead letters."""
