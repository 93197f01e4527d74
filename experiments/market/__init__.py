"""The market for load alone: participants, contracts and agents, without streams. ``python -m
experiments.market`` makes the tables and plots.
"""
