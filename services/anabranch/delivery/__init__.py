"""Delivery: writes an output's stable rows to the users' topic, one record each, in order, exactly
once.
"""
