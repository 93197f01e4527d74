"""Computes samples of what sellers make again, and writes what it finds into the ledgers."""
