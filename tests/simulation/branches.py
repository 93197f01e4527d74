"""Results that branches showed, for ``checkers.tentative``: bucket by bucket, with the streams that
they named and the bucket from which on these may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache

from checkers import tentative
from checkers.streams import Reading, ReadPart, Row
from simulation import workload
from simulation.options import Options


def check(
    options: Options,
    sources: dict[str, workload.Buckets],
    readings: Mapping[str, Reading],
    blocks: Mapping[str, ReadPart],
    silent: Iterable[str] | None,
    gaps: Mapping[str, Collection[int]],
) -> list[str]:
    """Check the tentative buckets of all stages. Return what is wrong.

    Args:
        options: The pipeline.
        sources: The streams of the sources as they must be.
        readings: Of the boundary logs of all stages.
        blocks: What reads a part, of each of them.
        silent: Where nothing else can be missing: the sources that fell silent. None: anything may
            be.
        gaps: What was given up, by stream: before that it may have been shown.
    """

    @cache
    def without(missing: frozenset[str], since: int) -> dict[str, workload.Buckets]:
        return workload.answers(options, sources, missing, since, gaps=gaps if missing else None)

    wrong: list[str] = []
    since_of: dict[str, dict[int, int]] = {}
    for stage in options.stages:
        mine = list(
            _shown(
                options, stage.name, stage.reads, readings[stage.name], blocks[stage.name], since_of
            )
        )
        can_be = options.made_from(stage.name)
        if silent is not None:  # a stage before may be behind for a moment
            can_be = {*silent} | (can_be - set(options.sources))
        wrong += _shown_though_given_up(stage.name, readings[stage.name])
        wrong += tentative.check(
            mine,
            lambda missing, since, name=stage.name: without(missing, since)[name],  # type: ignore[misc]
            can_be,
            split,
        )
    return wrong


def _shown_though_given_up(name: str, reading: Reading) -> Iterator[str]:
    """Check that a process shows nothing of buckets that it gives up itself: their results would be
    partial (RX4). An earlier process may have shown them.
    """
    for replica, writer in reading.writers.items():
        closed, given_up = 0, set[tuple[int, int]]()
        for _, record in writer.accepted:
            if record.missing:
                given_up |= {(record.epoch, each) for each in range(closed + 1, record.closed + 1)}
            closed = max(closed, record.closed)
        for made in writer.tentative:
            epoch, _ = made.branch
            for bucket in sorted(made.parts):
                if (epoch, bucket) in given_up:
                    yield f"{name}.{replica}: bucket {bucket} is shown in epoch {epoch}, given up"


def _shown(
    options: Options,
    name: str,
    reads: Iterable[str],
    reading: Reading,
    rows_of: ReadPart,
    since_of: dict[str, dict[int, int]],
) -> Iterator[tentative.Shown]:
    """Every bucket that a branch of stage ``name`` closed. ``since_of``: of streams and
    buckets that branches made, the least ``since``; added to.
    """
    first, last = workload.first_bucket(options), 2 * workload.last_bucket(options)
    mine = since_of.setdefault(name, {})
    for replica, writer in reading.writers.items():
        for made in writer.tentative:
            buckets = range(max(made.base + 1, first), min(made.last, last) + 1)
            before_it = [
                since_of[stream][bucket]
                for stream in reads
                if stream in since_of
                for bucket in buckets
                if bucket in since_of[stream]
            ]
            since = min([made.base, *before_it])
            for bucket in range(max(made.first, first), min(made.last, last) + 1):
                mine[bucket] = min(since, mine.get(bucket, since))
                rows = [
                    row
                    for part in made.parts.get(bucket, ())
                    for row in rows_of(replica, part) or ()
                ]
                yield tentative.Shown(
                    f"{name}.{replica}: tentative bucket {bucket} of branch {made.branch}",
                    bucket,
                    options.with_later(made.missing),
                    rows,
                    since,
                )


def split(row: Row) -> tuple[Row, tuple[float, ...]]:
    """Time, id and key of a row are the same whatever is missing; its value, a sum or a count
    or made of one, only grows.
    """
    return row[:3], (float(str(row[3])),)
