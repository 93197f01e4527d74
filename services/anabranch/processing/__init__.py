"""Processing service: runs the stages of a node, one Spark Structured Streaming query per replica
of a stage.
"""
