"""Spark Structured Streaming as the engine of a stage: exact, replayable batches in, blocks and
boundaries out.

``source`` is a Python data source that runs the plans of ``processing``'s planner, ``sink`` writes
a batch's results, ``plan_facts`` reads what a query consists of, ``session`` holds the settings
that are not optional. Nothing here decides about buckets: that is ``protocol.stage.planner``.
"""
