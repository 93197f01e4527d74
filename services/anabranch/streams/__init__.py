"""Readers and writers of the streams that services exchange: boundary logs, blocks, control
topics, the log of moves, and requests for blocks to be computed again.

They act on what ``protocol`` decides. Nothing here imports an adapter: Kafka is an ``EventLog``.
"""
