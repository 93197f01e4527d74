"""Linear Road: input, expected answers, validation and paced runs, for any system under test.

- ``stream``: the shape of input and expected answers, and their files.
- ``generator``, ``border``, ``dirt``: input, drawn from a seed or written by hand.
- ``batch_oracle``, ``event_oracle``: two implementations of the rules, which share nothing.
- ``validator``: verdict on the answers of a system; ``mutants``: faults that it must find.
- ``feeder``, ``receiver``, ``__main__``: runs of ``examples/linear_road`` by the wall clock.
- ``faults``, ``recovery``: what breaks in such a run, and what became of the answers meanwhile.

The rules and their choices: docs/experiments/linear_road.md.
"""
