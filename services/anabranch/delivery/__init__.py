"""Hands an output's stable records to users: one record each, in order, exactly once."""
