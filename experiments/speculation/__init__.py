"""Measurement of the delay that durable blocks add to a chain of stages, and of what a stage gains
that reads them earlier.
"""
