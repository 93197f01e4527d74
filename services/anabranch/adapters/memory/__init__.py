"""Implementations of the ports in memory, for tests, simulation and experiments. They pass the same
conformance tests as the real ones.
"""
