"""Replacement of stages with ``shards`` by the stages that run: one for each shard, and a union of
them where it is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from anabranch.pipeline.document import MISSING, Document, Place
from anabranch.pipeline.model import Resources, Shed, Stage
from anabranch.pipeline.stage_shed import read_shed
from anabranch.protocol import limits
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.stage.intervals import BITS_MAX, Interval, divided, is_power_of_two
from anabranch.protocol.stage.shares import Share


def expanded(
    document: Document,
    raw: Mapping[str, Any],
    stages: Mapping[str, Stage],
    delivered: Collection[object],
    *,
    checks_code: bool = True,
) -> tuple[dict[str, Stage], dict[str, list[str]]]:
    """Return the stages that run, and the names of the shards of each stage that has any.

    Each shard is a stage of its own, in place of the stage with shards. Where an output or another
    pipeline reads that stage, a stage of its name unites the shards.

    Args:
        document: Takes the mistakes.
        raw: The section ``stages``, by name.
        stages: The stages as they were read, without regard to shards.
        delivered: Names of stages that outputs or other pipelines read.
        checks_code: Whether to check that functions that the file names exist.
    """
    found: dict[str, Stage] = {}
    shards: dict[str, list[str]] = {}
    for name, stage in stages.items():
        entry = raw[name] if isinstance(raw[name], dict) else {}
        count, by = _shards(document, entry, stage)
        halvings = _halvings(document, entry, stage, count, is_delivered=name in delivered)
        shed = read_shed(document, entry, stage, by, checks_code=checks_code)
        stage = stage.model_copy(update={"shed": shed})  # noqa: PLW2901
        if count == 1 and not halvings:
            found[name] = stage
            continue
        shards[name] = []
        for interval, parent in _intervals(divided(count), halvings):
            shard = interval.name(name)
            shards[name].append(shard)
            share = Share(interval, by) if interval.bits else None
            found[shard] = stage.model_copy(
                update={
                    "name": shard,
                    "share": share,
                    "parent": "" if parent is None else parent.name(name),
                }
            )
        if count > 1 and name in delivered:
            found[name] = union_of(stage)
    return found, shards


def _intervals(first: list[Interval], halvings: int) -> Iterator[tuple[Interval, Interval | None]]:
    """Yield the intervals of all shards that a stage may have, each with the one that it is a half
    of: None for those with which the stage begins, which come ``first``.
    """
    found: list[tuple[Interval, Interval | None]] = [(each, None) for each in first]
    for _ in range(halvings + 1):
        yield from found
        found = [(half, each) for each, _ in found for half in each.halves()]


def shards_of(stage: str, stages: Mapping[str, Stage]) -> list[str]:
    """Return the stages that run the shards of ``stage``; empty: it has no shards."""
    return [name for name, of in stages.items() if of.share is not None and whole_of(name) == stage]


def union_of(stage: Stage) -> Stage:
    """Return a stage that unites the rows of the shards of ``stage``. It has the recovery mode of
    the shards.
    """
    return stage.model_copy(
        update={
            "reads": [stage.name],
            "transform": [],
            "sql": f"SELECT * FROM `{stage.name}`",  # noqa: S608 - a name has no quotes
            "parameters": {},
            # Each row passes on its own, so no older record changes a result.
            "state_horizon_ms": None if stage.state_horizon_ms is None else 0,
            "resources": Resources(),
            "shed": Shed(),
        }
    )


def _shards(
    document: Document, raw: Mapping[str, Any], stage: Stage
) -> tuple[int, dict[str, tuple[str, ...]]]:
    """Return the number of shards, and the key columns of each input."""
    at: Place = ("stages", stage.name)
    count = document.integer(raw.get("shards", 1), (*at, "shards"), 1, limits.SHARDS_MAX)
    if not is_power_of_two(count):
        document.mistake(
            (*at, "shards"),
            "its rows are halved again and again, so a stage has 1, 2, 4, 8 or 16 shards, not"
            f" {count}",
        )
        count = 1
    given = raw.get("shard_by", MISSING)
    if given is MISSING:
        if count > 1:
            document.mistake(
                (*at, "shard_by"),
                "is missing; name the key columns by which rows are divided, shard_by: [COLUMN],"
                " or those of each input, shard_by: {INPUT: [COLUMN]}",
            )
        return count, {}
    by = _by(document, given, (*at, "shard_by"), stage.reads)
    if by and not any(by.values()):
        document.mistake(
            (*at, "shard_by"), "every shard would compute all results; name a column of an input"
        )
    text = Share(Interval("0" * BITS_MAX), by).text()
    if len(text) > limits.SHARE_CHARACTERS_MAX:
        document.mistake(
            (*at, "shard_by"),
            f"{len(text)} characters with the names of the inputs; at most"
            f" {limits.SHARE_CHARACTERS_MAX} are possible",
        )
    return count, by


def _halvings(
    document: Document, raw: Mapping[str, Any], stage: Stage, count: int, *, is_delivered: bool
) -> int:
    """Return how often each shard of ``stage``, which begins with ``count``, may be halved."""
    at: Place = ("stages", stage.name, "halvings")
    halvings = document.integer(raw.get("halvings", 0), at, 0, BITS_MAX)
    if not halvings:
        return 0
    if count << halvings > limits.SHARDS_MAX:
        document.mistake(
            at,
            f"{count << halvings} shards could run at the same time, and a stage has at most"
            f" {limits.SHARDS_MAX}",
        )
        return 0
    if raw.get("shard_by", MISSING) is MISSING:
        document.mistake(at, "needs shard_by, the key by which the rows of a shard are halved")
    if stage.ha != "active":
        document.mistake(at, f"is for ha: active, and this stage has ha: {stage.ha}")
    if stage.state_horizon_ms is None:
        document.mistake(
            at,
            "needs state_horizon, the time after which a record no longer changes results: a half"
            " takes over once it has read so much input",
        )
    if count == 1 and is_delivered:
        document.mistake(
            at,
            "needs shards: 2 or more where an output or another pipeline reads the stage: under the"
            " stage's own name runs what unites the shards",
        )
    return halvings


def _by(
    document: Document, given: object, at: Place, reads: list[str]
) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, dict):
        columns = tuple(column for column, _ in document.texts(given, at, "column"))
        return dict.fromkeys(reads, columns)
    found: dict[str, tuple[str, ...]] = {}
    named = document.mapping(given, at, tuple(reads))
    for name in reads:
        if name not in named:
            document.mistake(
                at,
                f"{name} is missing; name the columns of its key, or write {name}: [] if every"
                " shard is to read all of it",
            )
        elif named[name] == []:
            found[name] = ()
        else:
            listed = document.texts(named[name], (*at, name), "column")
            found[name] = tuple(column for column, _ in listed)
    return found
