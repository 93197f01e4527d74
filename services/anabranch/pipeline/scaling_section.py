"""Reader of the section ``scaling`` of a pipeline file: the pool of nodes, and when replicas move
there by themselves (``protocol.control.scaling``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from anabranch.pipeline.document import Document, shown
from anabranch.pipeline.model import Scaling, Stage
from anabranch.protocol.control.placement import place

_AT: Final = "scaling"
_PERCENT: Final = re.compile(r"([1-9][0-9]?)%\Z")
_NODE: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\.[0-9]{1,3}\Z")

FOR_MS_MIN: Final = 3_000
"""Shortest window, in ms: a node reports once a second, and one report is no trend."""
FOR_MS_MAX: Final = 600_000
REST_MS_MIN: Final = 1_000
REST_MS_MAX: Final = 24 * 3_600_000
PARALLEL_MAX: Final = 2
"""Largest ``parallel``: a shard is split into two halves."""


def read_scaling(
    document: Document, value: object, stages: Mapping[str, Stage], named: dict[str, list[str]]
) -> Scaling | None:
    """Return the section ``scaling``; None where there is none, or a mistake. ``named``: the nodes
    that the file names, to which those of the pool are added.
    """
    if value is None:
        return None
    raw = document.mapping(value, (_AT,), ("nodes", "above", "for", "rest", "parallel"))
    if not isinstance(value, dict):
        return None
    pool = []
    if "nodes" in raw:
        pool = [node for node, _ in document.texts(raw["nodes"], (_AT, "nodes"), "node")]
    else:
        document.mistake(
            (_AT, "nodes"),
            "is missing; name the nodes of the pool, which run and wait: [local.1]",
        )
    above = raw.get("above", "70%")
    found = _PERCENT.match(above) if isinstance(above, str) else None
    if found is None:
        document.mistake(
            (_AT, "above"), f"{shown(above)} is no share; write it in percent, from 1% to 99%: 70%"
        )
    window_ms = document.duration(raw.get("for", "10s"), (_AT, "for"), FOR_MS_MIN, FOR_MS_MAX)
    rest_ms = document.duration(raw.get("rest", "30s"), (_AT, "rest"), REST_MS_MIN, REST_MS_MAX)
    parallel = document.integer(raw.get("parallel", 1), (_AT, "parallel"), 1, PARALLEL_MAX)
    _check_pool(document, pool, stages, named)
    if parallel != 1:
        _check_parallel(document, pool, stages)
    if document.mistakes or found is None:
        return None
    named |= {node: [] for node in pool}
    return Scaling(
        pool=pool,
        above_permille=int(found[1]) * 10,
        for_ms=cast("int", window_ms),
        rest_ms=cast("int", rest_ms),
        parallel=parallel,
    )


def _check_parallel(document: Document, pool: list[str], stages: Mapping[str, Stage]) -> None:
    """Report what keeps the shards of a lost node from being split."""
    if document.mistakes:
        return
    at = (_AT, "parallel")
    if not any(stage.parent for stage in stages.values()):
        document.mistake(
            at,
            "splits the shards of a lost node, and no stage has shards that may be split: give"
            " those that work key by key `shard_by`, `state_horizon` and `halvings`",
        )
    if len(set(pool)) < PARALLEL_MAX:
        document.mistake(
            at,
            "needs a node of the pool for each half of a shard: name two under `nodes`, or three,"
            " so that no half shares one with the shard",
        )


def _check_pool(
    document: Document, pool: list[str], stages: Mapping[str, Stage], named: dict[str, list[str]]
) -> None:
    """Report nodes of the pool that have replicas of their own, or the name of no participant."""
    if document.mistakes:
        return  # what the file places is not known
    owners = sorted({stage.participant for stage in stages.values()})
    taken = place([stage.placed() for stage in stages.values()], named)
    for index, node in enumerate(pool):
        at = (_AT, "nodes", index)
        owner = node.partition(".")[0]
        if not _NODE.match(node) or owner not in owners:
            document.mistake(
                at,
                f"a node of the pool has no replicas, so its name says whose it is: call it"
                f" PARTICIPANT.NUMBER, as {owners[0] if owners else 'local'}.7, with one of"
                f" {', '.join(owners)}",
            )
        elif taken.get(node):
            document.mistake(
                at,
                f"{node} has replicas of its own, {', '.join(taken[node])}: the pool is for those"
                f" that must leave their node. Use a number that no replica has, as {owner}.7, or"
                " place these elsewhere under `nodes`",
            )
