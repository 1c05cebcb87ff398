"""NATS JetStream as a source and a sink."""
