"""The nouns of the exactly-once core: ranges, productions, signals, requests, counts."""
