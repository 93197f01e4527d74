"""Real processes, real faults: a nemesis breaks a running deployment in an order drawn from a
seed, and pure functions judge what came out.
"""
