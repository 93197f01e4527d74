"""Where records come in and results go out: ingestion, the corrected topic, the live topic."""
