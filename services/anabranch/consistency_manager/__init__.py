"""Consistency manager of a pipeline: follows all boundary logs and control topics, fences wrong
replicas, publishes trim points, deletes what no reader needs, keeps the index and raises alarms.

No other service waits for it.
"""
