"""Event log on a real Kafka, by confluent-kafka: the implementation of ``ports.EventLog``."""
