"""What `make demo` runs: traffic, an oracle, judges of both topics, and what starts it all."""
