"""Smart grid (DEBS 2014 grand challenge): input, expected results, validation and runs.

- ``generator``: readings in the challenge's layout, drawn from a seed.
- ``oracle``: the expected results, computed without any code of the example.
- ``validator``: comparison of results with the expected ones; ``mutants``: faults that it finds.
- ``feeder``, ``receiver``, ``__main__``: runs of the example; ``parts``: what they cost.

The rules and their choices: docs/experiments/smart_grid.md.
"""
