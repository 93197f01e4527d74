"""Restatement of a stage: whether it may begin anew with a function whose state means something
else, and after which bucket.

Theory of operation. A function that computes its state otherwise continues from no checkpoint of
the function before (``protocol.log.stateful_plan``): its replica ends. An operator may decide that
the stage begins anew with it. The decision is a record in the log of moves. It names the stage, the
version that the pipeline file gives the new function, and the bucket after which that begins. Each
replica of that version passes over its checkpoint of the function before, once, and recomputes the
results from the input after that bucket. Its results of buckets that are closed already do not
count (``protocol.log.boundary_log``, BL4). So the upgrade of the stage is like any other: the
version before continues, where a replica still runs it, until a replica of the new one has closed
all that is stable; the log names that bucket (BL15), and each bucket is of one version.

Results within the state horizon after the beginning may lack input that lies before it. The command
chooses a bucket one horizon before all that is stable, so the partial results are closed already.
Where that input is gone, the replica begins after what is gone. Then its results up to one horizon
later are given up: closed empty, in records that name every input as missing
(``protocol.stage.recovery``, SH1, SH3).

Invariants:
    RS1 a decision counts for one version of one stage; if there are several, the newest counts.
    RS2 it counts only where the state horizon is known, and only for a version that replaces
        another one in the log, or has replaced it: no result of the new function lacks input unless
        its record says so, and no bucket is made by both functions.
    RS3 a decision replaces a checkpoint that a lower version made with another function by input,
        and nothing else: a replica that loses its own state later begins as every replica does.
    RS4 once the version counts, all of its replicas begin after the same bucket, whatever is gone:
        they wait for blocks, as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.protocol.control.records import Restated
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import bound_ms, bucket_of
from anabranch.protocol.stage.splitting import halves_of


class Restatements:
    """Operators' decisions by stage and version, from the log of moves."""

    def __init__(self) -> None:
        self._after: dict[tuple[str, int], int] = {}

    def add(self, decision: Restated) -> bool:
        """Apply the next decision of the log (RS1). Return whether its bucket is valid."""
        if not 0 <= decision.after <= BUCKET_MAX:
            return False
        self._after[decision.stage, decision.version] = decision.after
        return True

    def after(self, stage: str, version: int) -> int | None:
        """Return the bucket after which ``version`` of ``stage`` begins anew; None if no operator
        has decided that.
        """
        return self._after.get((stage, version))


@dataclass(frozen=True, slots=True)
class RestatedStage:
    """Stage that an operator wants to begin anew, with the facts of its pipeline file and its
    log.
    """

    name: str
    version: int
    """Version that the pipeline file gives the function."""
    horizon: int | None
    """State horizon, in buckets; None: not known."""
    log_state: LogState
    """The stage's stream, read to its end."""
    gone: int
    """Last bucket of which blocks of an input are gone; 0: none is."""
    width_ms: int
    """Width of a bucket, in ms."""


@dataclass(frozen=True, slots=True)
class Restatement:
    """Consequences of a decision, in buckets."""

    after: int
    """Last bucket whose input the new function does not read."""
    kept_upto: int
    """Last bucket whose results remain unchanged. The previous version adds to them until the new
    one has caught up.
    """
    given_up_upto: int
    """Last bucket of those after ``kept_upto`` whose results are given up, unless the previous
    version closes them first; 0 if none are.
    """


def restatement(stage: RestatedStage, from_ms: int | None, retained_from: str) -> Restatement:
    """Return the consequences of beginning ``stage`` anew (RS2).

    Args:
        stage: Facts about the stage.
        from_ms: Time from which the operator wants the input to be taken, in ms; None: as far back
            as results need.
        retained_from: Time after ``stage.gone`` in the form of the option, for messages.

    Raises:
        ConfigurationError: the decision would change nothing, or cannot be kept.
    """
    counts, replaced_upto = stage.log_state.version
    has_replaced = stage.version == counts and replaced_upto > 0
    if not any(stage.log_state.origin(each).has_results for each in stage.log_state.writers):
        raise ConfigurationError(
            f"stage {stage.name} has no results yet: its function can be changed as it is, with"
            " `anabranch reset`, or under another stage name"
        )
    if stage.log_state.heirs:
        raise ConfigurationError(
            f"stage {stage.name}: it was split, and its halves make its results now: let"
            f" {' and '.join(halves_of(stage.name))} begin anew"
        )
    if stage.version <= counts and not has_replaced:
        raise ConfigurationError(
            f"stage {stage.name}: version {counts} makes its results, and the pipeline file says"
            f" version {stage.version}: give the changed function version {counts + 1} first"
        )
    if stage.horizon is None:
        raise ConfigurationError(
            f"stage {stage.name}: how far back its state reaches is not known, so nobody could say"
            " which of its first results lack input: give it `state_horizon` in the pipeline file"
            " (the length of its longest window, the bound of its join)"
        )
    upto = replaced_upto if has_replaced else stage.log_state.upto
    after = max(0, upto - stage.horizon)
    if has_replaced:
        # What its other replicas have made is compared with what this one makes (RS4), so that
        # begins where all of it is whole, and waits for input that is gone.
        return Restatement(after, upto, 0)
    first = stage.gone
    if from_ms is not None:
        after = bucket_of(from_ms, stage.width_ms) - 1
        if after < first:
            raise ConfigurationError(
                f"stage {stage.name}: its input is retained from {retained_from} on, which is after"
                f" --from: give --from {retained_from}, or leave it out"
            )
        if after > upto:
            raise ConfigurationError(
                f"stage {stage.name}: --from is after its last result"
                f" ({bound_ms(upto, stage.width_ms)} ms since 1970): what lies between would be"
                " left out"
            )
    after = max(after, first)
    whole_after = after + stage.horizon if after else 0
    return Restatement(after, upto, whole_after if whole_after > upto else 0)
