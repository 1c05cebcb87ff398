"""Relays: what waits in outboxes goes to sinks, exactly once."""
