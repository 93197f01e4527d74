"""A stage that goes to a partner's node and comes home: what must never be seen of that."""

from __future__ import annotations

from simulation.moving import Moving


class SoldStage(Moving):
    """See ``moving.Moving``: here agents move it, as often as they like."""

    def is_over(self) -> bool:
        """Return whether the stage runs where its place is, and nowhere else."""
        return self._running() == [self._place()]

    def check(self) -> None:
        """At the end of the run: nothing; agents decide how often it moves."""
