"""Windows of a key: when they fire, what they emit and retract, what merges and what is late."""
