"""The published experiments about delay and inconsistency under failures (Borealis' Delay,
Process, and Correct), on real processes and in virtual time.
"""
