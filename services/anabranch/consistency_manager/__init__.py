"""Follows everything that a pipeline's services say, keeps the index, and raises alarms.
Nothing waits for it.
"""
