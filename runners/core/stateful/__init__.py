"""Stateful DoFns: the state and timers of a key, and the calls that use them."""
