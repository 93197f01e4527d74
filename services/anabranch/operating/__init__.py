"""The work of the commands on a pipeline: inspect, produce, move, give up, reset, sign contracts.

``cli`` parses options and prints; it calls these modules.
"""
