"""Open windows: what a grouping keeps until its windows have fired, in the way that suits windows and engine."""
