"""Input that an operator gave up: source data that never arrives, so that results need not wait for
it for ever.

Theory of operation. A source that never returns keeps its boundary where it is, and with it every
stable result of the pipeline. An operator may append a boundary in its place: a stable record of
the source's own writer, of an epoch of its own, which closes the buckets up to a time and names
them as given up. All readers see it as a new process of the source (rule 1): the previous process
is fenced, the next one continues after the operator's boundary from the same positions, and rows of
the closed buckets that it reads are late. Rows that had been read before are in their buckets.

A given-up bucket may lack rows, and so may results that are computed from it. So each stable record
of a stage names, among the buckets that it closes, those to which a given-up bucket of an input can
still contribute: the ones within the stage's *state horizon* (``protocol.stage.recovery``). Without
state that is the bucket itself; with state but without a known horizon it is every later bucket.
The log state of a stream keeps these names by bucket, so every reader has them, wherever it starts
in the log.

Invariants:
    GU1 an operator's boundary closes only buckets that were open: nothing that is stable changes
        (BL4).
    GU2 nothing before the time that the operator names is given up: where the source is not
        complete up to there, nothing is.
    GU3 the sources that a bucket is marked with follow from the ranges of the inputs, so every
        replica, and every repetition of a batch, marks it alike.
    GU4 if there are too many ranges to keep, buckets between them are marked too: never fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import BUCKET_MAX, GIVEN_UP_MAX, MISSING_STREAMS_MAX
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, GivenUp


class GivenUpBuckets:
    """Buckets of one stream that lack given-up input, as ranges per source."""

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, ranges: Iterable[GivenUp]) -> None:
        """Add ``ranges``. Adjacent ranges of one source are merged."""
        for new in ranges:
            if new.source not in self._ranges and len(self._ranges) >= GIVEN_UP_MAX:
                # More names than a pipeline can have sources: only a faulty writer records them.
                continue
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
        """Return all ranges, ordered by source and bucket."""
        return tuple(
            GivenUp(source, first, last)
            for source in sorted(self._ranges)
            for first, last in self._ranges[source]
        )

    def names(self, bucket: int) -> tuple[str, ...]:
        """Return the given-up sources whose rows ``bucket`` may lack, sorted."""
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
    """Return the given-up input that the results in buckets ``first..last`` lack (GU3).
    ``horizon_buckets`` is the stage's state horizon; None if it is not known.
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
    """Time span that an operator asks to give up, in ms: the incomplete part of
    ``from_ms..until_ms``.
    """

    from_ms: int
    until_ms: int


def to_give_up(source: str, closed: int, times: Times, width_ms: int, stated: str) -> GivenUp:
    """Return the buckets that the operator's boundary closes as given up.

    Args:
        source: Name of the source.
        closed: Last bucket that the source has closed.
        times: Range that the operator wants to give up.
        width_ms: Width of a bucket.
        stated: Time of the source's boundary as text, as ``--from`` takes it.

    Raises:
        ConfigurationError: the source is not complete up to ``from_ms`` (GU2), or it has closed
            everything up to ``until_ms`` (GU1).
    """
    boundary_ms = bound_ms(closed, width_ms)
    if times.until_ms <= times.from_ms:
        raise ConfigurationError(
            f"source {source}: --until is not after --from, so there is nothing to give up: give a"
            " later --until"
        )
    if boundary_ms < times.from_ms:
        raise ConfigurationError(
            f"source {source} is complete up to {stated} only, which is before --from: the input"
            f" between would be given up too. If that is what you want: --from {stated}"
        )
    last = times.until_ms // width_ms
    if last <= closed:
        raise ConfigurationError(
            f"source {source} is complete up to {stated}, which is not before --until: there is"
            " nothing to give up"
        )
    return GivenUp(source, closed + 1, last)


def named(record: BoundaryRecord, lacks: Sequence[GivenUp]) -> BoundaryRecord:
    """Return ``record`` marked with the given-up input that its closed buckets lack. A stable
    record carries it in ``given_up``, a tentative one in ``missing``.
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
