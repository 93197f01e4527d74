"""Hands an output's stable tuples to users: one record each, in order, exactly once."""
