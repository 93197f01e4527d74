"""Measurement of recovery by backtracking: its cost without failures, and its duration, compared
with waiting for acknowledgements and with doing nothing.
"""
