"""The published experiments about delay and inconsistency under failures (specs/dpc.md 9), on real processes and in virtual time."""
