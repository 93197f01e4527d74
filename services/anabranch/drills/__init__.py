"""Faults on purpose: services are killed, paused and cut off, to see that nothing is lost."""
