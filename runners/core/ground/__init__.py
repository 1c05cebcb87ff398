"""What everything in the core is made of: bundles, cells and timers as values, keys as bytes, dead letters."""
