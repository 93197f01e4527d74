"""Programs of ``make demo``: traffic, an oracle, judges of both topics, and the driver that runs
them.
"""
