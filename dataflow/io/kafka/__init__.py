"""Kafka as a source and a sink, by confluent-kafka (librdkafka)."""
