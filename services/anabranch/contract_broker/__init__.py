"""Keeps a participant's book of contracts, and settles what is due. Nothing waits for it."""
