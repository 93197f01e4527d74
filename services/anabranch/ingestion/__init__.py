"""Ingestion: the writer of a source. Reads a user's topics, gives every record its time, and
makes blocks and boundaries of them.
"""
