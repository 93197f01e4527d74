"""The ports in memory: for tests, simulation and trying things out. They pass the same
conformance suite as the real ones.
"""
