"""Entry and exit of records: ingestion, the corrected topic, the live topic."""
