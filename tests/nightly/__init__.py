"""Runs of what takes too long for ``make test``, and the report of their outcome."""
