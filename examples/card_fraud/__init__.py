"""Suspicious payments, found with state and timers; a timer closes each case."""
