"""A stage or an output that is added to a pipeline whose blocks were deleted in part: where does it
begin?

Theory of operation. Trimming deletes what all readers that there are have passed (rule 18). A stage
that is added later cannot have that; nor can anybody make it again, if the inputs of the stage
before are gone as well. So a stage that has never made anything begins after the last bucket of
which blocks are gone. It closes empty what it leaves out, and its first record names every input as
missing. Whoever has made anything at all has a state that may not be left out: it waits for blocks
or a checkpoint (``protocol.log.timeline``).

A result may need input from before the beginning (a window that began earlier). Where the stage's
state horizon is known (``protocol.control.state_horizon``) the buckets within it are given up too,
and what follows is whole; where it is not, the first results are made from what there is.

An output begins late in the same way, as long as it has delivered nothing.

Invariants:
    LA1 a stage begins late only while every stable record of its stream is one that says so:
        nothing is ever left out between results.
    LA2 once one replica has written where, all that begin late begin there.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.protocol.log.boundary_log import LogState


def output_begins_after(gone: Callable[[], int], *, has_delivered: bool) -> int:
    """The bucket after which a corrected topic begins; 0: nothing is left out, or may be.

    Args:
        gone: The last bucket of which nobody has all blocks.
        has_delivered: Anything was written to it, by whichever process.
    """
    return 0 if has_delivered else gone()


def live_begins_after(
    delivered: int | None, forgotten: int, gone: Callable[[], int], begun: int | None
) -> int:
    """The bucket after which a live topic begins to which nothing was written yet.

    Args:
        delivered: The last bucket that the corrected topic has whole; None: it has nothing, so the
            live one begins where the corrected one will.
        forgotten: Up to here the log state describes nothing any more.
        gone: The last bucket of which nobody has all blocks.
        begun: What an earlier process wrote. By now more may be gone, but where anything is
            delivered it stands.
    """
    if delivered is None:
        return max(gone(), begun or 0)
    return max(delivered, forgotten) if begun is None else begun


class LateStart:
    """Of one process of a stage."""

    def __init__(self, gone: Callable[[], int], horizon_buckets: int = 0) -> None:
        """``gone``: the last bucket of which an input's blocks are gone, the inputs' logs
        read to their end; 0: none is.
        """
        self._gone, self._horizon_buckets = gone, horizon_buckets
        self.after = 0
        """What ``decide`` said last."""

    def decide(self, log_state: LogState) -> int:
        """The bucket after which a process without a checkpoint begins; 0: nothing is left
        out, or may be (LA1). ``log_state``: of the stage's own stream.
        """
        origins = [log_state.origin(writer) for writer in log_state.writers]
        stated = max(origin.late_upto for origin in origins)
        self.after = 0 if any(origin.has_results for origin in origins) else stated or self._gone()
        return self.after

    @property
    def given_up(self) -> int:
        """The output is given up to this bucket; 0: nothing is left out."""
        return self.after + self._horizon_buckets if self.after else 0
