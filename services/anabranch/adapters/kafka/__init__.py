"""``ports.EventLog`` over a real Kafka, by confluent-kafka."""
