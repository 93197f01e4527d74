"""Overload of a stage: results in time from part of the rows, and exact later."""
