"""The work of the commands on a pipeline: check, try, produce, move, scale, give up, restate ...

It is apart from ``cli``, which parses options and prints, for two reasons: ``--help`` and
completion must not import it, and the simulation and other callers without a terminal carry out the
same work. A module has the name of its command.
"""
