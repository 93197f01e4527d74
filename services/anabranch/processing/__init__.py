"""Processing: one Spark Structured Streaming query per replica of a stage (DESIGN 3.2)."""
