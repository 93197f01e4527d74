"""Nexmark: queries on a stream of auctions, by several systems, with judged answers.

``generator`` makes the stream, ``oracle`` computes the right answers over all of it, ``verdict``
compares a system's answers with them. These three know no system. ``queries`` has a pipeline file
for each query, ``plain_queries`` and ``flink_queries`` the same queries for the other systems, and
``__main__`` runs all on one machine.
"""
