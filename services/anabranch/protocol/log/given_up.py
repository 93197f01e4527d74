"""What an operator gave up: input that never comes, so that results do not wait for it for ever.

Theory of operation. A source that never returns keeps its boundary where it is, and with it every
stable result of the pipeline. An operator may append a boundary in its place: a stable record of
the source's own writer, of an epoch of its own, which closes the buckets up to a time and names
them as given up. To everybody that is a new process of the source (rule 1): a zombie of the one
before is fenced, the next one goes on behind the operator's boundary from the same positions, and
what it reads of the closed buckets is late. What had been read of them is in them.

A bucket that is given up may lack anything, and so may what is made from it. So each stable record
of a stage names those of the buckets that it closes to which a given-up bucket of an input can
still contribute: within the stage's *state horizon* (``protocol.stage.recovery``); without
state that is the bucket itself, and with state and without a known horizon everything from there
on. The log state of a stream keeps these names by bucket, so every reader has them, however it came
to its place in the log.

Invariants:
    GU1 an operator's boundary closes only buckets that were open: nothing that is stable changes
        (BL4).
    GU2 nothing before the time that the operator names is given up: where the source is not
        complete up to there, nothing is.
    GU3 what a bucket is named with follows from the ranges of the inputs, so every replica, and
        every repetition of a batch, names the same.
    GU4 where ranges are too many to be kept, buckets between them are named too: never fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import BUCKET_MAX, GIVEN_UP_MAX, MISSING_STREAMS_MAX
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, GivenUp


class GivenUpBuckets:
    """The buckets of one stream that lack something that was given up, and what."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, ranges: Iterable[GivenUp]) -> None:
        """These, too. Ranges of one source that touch become one."""
        for new in ranges:
            if new.source not in self._ranges and len(self._ranges) >= GIVEN_UP_MAX:
                continue  # more names than a pipeline has sources: nobody who works says that
            joined: list[tuple[int, int]] = []
            for first, last in sorted([*self._ranges.get(new.source, ()), (new.first, new.last)]):
                if joined and first <= joined[-1][1] + 1:
                    joined[-1] = joined[-1][0], max(last, joined[-1][1])
                else:
                    joined.append((first, last))
            if len(joined) > GIVEN_UP_MAX:  # GU4
                joined[:2] = [(joined[0][0], joined[1][1])]
            self._ranges[new.source] = joined

    def ranges(self) -> tuple[GivenUp, ...]:
        """All of them, by source and bucket."""
        return tuple(
            GivenUp(source, first, last)
            for source in sorted(self._ranges)
            for first, last in self._ranges[source]
        )

    def names(self, bucket: int) -> tuple[str, ...]:
        """The sources that were given up and that ``bucket`` may lack, sorted."""
        return tuple(
            sorted(
                source
                for source, found in self._ranges.items()
                if any(first <= bucket <= last for first, last in found)
            )
        )


def of_results(
    inputs: Iterable[GivenUpBuckets],
    first: int,
    last: int,
    horizon_buckets: int | None,
    *,
    is_stateful: bool,
) -> tuple[GivenUp, ...]:
    """What the results in buckets ``first..last`` lack (GU3). ``horizon_buckets``: of the
    stage, None: not known.
    """
    horizon = horizon_buckets if horizon_buckets is not None else BUCKET_MAX if is_stateful else 0
    found = GivenUpBuckets()
    for given_up in inputs:
        clipped = (
            GivenUp(each.source, max(first, each.first), min(last, each.last + horizon))
            for each in given_up.ranges()
        )
        found.add(each for each in clipped if each.first <= each.last)
    return found.ranges()[:GIVEN_UP_MAX]


@dataclass(frozen=True, slots=True)
class Times:
    """What an operator asks for, in ms: give up what is not complete ``from_ms..until_ms``."""

    from_ms: int
    until_ms: int


def to_give_up(source: str, closed: int, times: Times, width_ms: int, stated: str) -> GivenUp:
    """The buckets to close as given up.

    Args:
        source: Its name.
        closed: The last bucket that it has closed.
        times: What the operator asks for.
        width_ms: Of a bucket.
        stated: How the operator reads the time of the boundary: what to write after ``--from``.

    Raises:
        ConfigurationError: the source is not complete up to ``from_ms`` (GU2), or it has closed
            everything up to ``until_ms`` (GU1).
    """
    boundary_ms = bound_ms(closed, width_ms)
    if times.until_ms <= times.from_ms:
        raise ConfigurationError(
            f"source {source}: --until is not after --from: nothing lies between them"
        )
    if boundary_ms < times.from_ms:
        raise ConfigurationError(
            f"source {source} is complete up to {stated} only, which is before --from: what lies"
            f" between would be given up too. If that is what you want: --from {stated}"
        )
    last = times.until_ms // width_ms
    if last <= closed:
        raise ConfigurationError(
            f"source {source} is complete up to {stated}: there is nothing to give up until then"
        )
    return GivenUp(source, closed + 1, last)


def named(record: BoundaryRecord, lacks: Sequence[GivenUp]) -> BoundaryRecord:
    """``record`` with the names of what the results in the buckets that it closes lack; a
    tentative one names it like all that is missing.
    """
    if not lacks:
        return record
    if record.kind is BoundaryKind.STABLE:
        return replace(record, given_up=tuple(lacks))
    return replace(
        record,
        missing=tuple(
            sorted({*record.missing, *(each.source for each in lacks)})[:MISSING_STREAMS_MAX]
        ),
    )
