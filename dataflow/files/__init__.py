"""Files that are written, exactly once, and files that elements name."""
