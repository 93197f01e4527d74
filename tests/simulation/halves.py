"""Stage of a seed whose shard may be split: its halves as the pipeline file would name them, and
the rows that each of them takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.protocol.stage.intervals import HASH_BITS, Interval
from anabranch.protocol.stage.shares import Share

if TYPE_CHECKING:
    from anabranch.pipeline.model import Stage
    from simulation.options import Options, StageOptions
    from simulation.workload import Row

_SPREAD: Final = 2_654_435_761
"""Factor that spreads keys over all hashes: each half has a key of the workload at least."""
_HALVES: Final = Interval().halves()


def of(stage: StageOptions) -> list[StageOptions]:
    """Return the halves of the shard ``stage``; none if it may not be split."""
    if not stage.may_split:
        return []
    batch_ms = stage.batch_ms + stage.half_ms
    return [
        replace(stage, name=half.name(stage.name), batch_ms=batch_ms, may_split=False)
        for half in _HALVES
    ]


def names(options: Options) -> dict[str, list[str]]:
    """Return the halves of each stage whose shard may be split."""
    found = {stage.name: [half.name for half in of(stage)] for stage in options.stages}
    return {stage: those for stage, those in found.items() if those}


def as_shards(options: Options, streams: Iterable[str]) -> tuple[str, ...]:
    """Return ``streams`` with the shard in place of each of its halves: who lacks one lacks rows
    of the shard.
    """
    shard_of = {half: shard for shard, those in names(options).items() for half in those}
    return tuple(sorted({shard_of.get(each, each) for each in streams}))


def with_halves(stages: dict[str, Stage], halves: dict[str, list[str]]) -> dict[str, Stage]:
    """Return ``stages`` with the halves behind each shard that may be split."""
    found = {}
    for name, stage in stages.items():
        found[name] = stage
        by = dict.fromkeys(stage.reads, ("key",))
        for interval, half in zip(_HALVES, halves.get(name, ()), strict=False):
            changes = {"name": half, "share": Share(interval, by), "parent": name}
            found[half] = stage.model_copy(update=changes)
    return found


def in_half(half: Interval, row: Row) -> bool:
    """Return whether the key of ``row`` is in ``half``."""
    return half.has(row[2] * _SPREAD % 2**HASH_BITS)


def own_rows(stage: Stage, rows: Iterable[Row]) -> list[Row]:
    """Return the rows of an input that ``stage`` takes: all, or those of its half."""
    share = stage.share
    return [row for row in rows if share is None or in_half(share.interval, row)]


def parts(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of each half."""
    rows = list(rows)
    return [[row for row in rows if in_half(half, row)] for half in _HALVES]
