"""Spark Structured Streaming as the engine of a stage: it runs exact, replayable batches and writes
blocks and boundary records.

``source`` is a Python data source that reads what the planner plans, ``sink`` writes a batch's
results, ``plan_facts`` reads what a query consists of, and ``session`` holds the settings that are
not optional. Decisions about buckets are made in ``protocol.stage.planner``, not here.
"""
