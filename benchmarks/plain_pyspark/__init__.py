"""The other system of the benchmark: Spark Structured Streaming with its own Kafka connector."""
