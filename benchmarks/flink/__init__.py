"""Another system of the benchmark: Flink SQL, by PyFlink, with its Kafka connector."""
