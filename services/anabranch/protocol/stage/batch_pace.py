"""How often does a query begin a batch, where many replicas share few cores?

Theory of operation. A small batch costs about SMALL_BATCH_MS of one core whatever it holds. So
fewer and larger ones are cheaper, and results get older by as much as batches are apart. Even where
each replica has a core, a batch for each bucket would keep the cores busy: queries would wait for
one another, and results be no younger. So batches are APART_LEAST_MS apart. Each replica more than
there are cores takes its batch from the cores of the others, so all leave as much more time between
theirs.

Invariants:
    BP1 batches are never less than APART_LEAST_MS apart, and never more than APART_MOST_MS.
    BP2 replicas that have a core each change nothing; one more never makes batches come closer.
"""

from __future__ import annotations

from typing import Final

APART_LEAST_MS: Final = 400
"""A batch for each bucket of 250 ms keeps two cores busy and makes results no younger: they
wait for one another.
"""
APART_MOST_MS: Final = 1_000
"""Results get older by it at every stage, so there is an end to what is saved."""
SMALL_BATCH_MS: Final = 150
"""What a small batch takes of one core, measured."""


def pace_ms(replicas: int, cores: int) -> int:
    """Least time between the starts of two batches of a query, where ``replicas`` of stages share
    ``cores`` (BP1, BP2).
    """
    return min(APART_MOST_MS, APART_LEAST_MS + SMALL_BATCH_MS * max(0, replicas - cores))
