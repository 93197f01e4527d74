"""Ingestion: the writer of a source's stream. Reads the user's topics, assigns every record an
event time, and writes blocks and boundary records.
"""
