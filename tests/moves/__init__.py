"""A stage moves between two owners on real processes, under load; in each movement a random party
is killed. ``make moves`` runs it, README.md beside this file describes it.
"""
