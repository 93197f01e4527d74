"""Checkers of a run, as pure functions over what was recorded of it. They know neither simulation
nor broker.
"""
