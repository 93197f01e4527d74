"""Processing: one Spark Structured Streaming query per replica of a stage."""
