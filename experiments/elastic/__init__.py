"""Measurement of moves, restarts and recovery of a stage with large state."""
