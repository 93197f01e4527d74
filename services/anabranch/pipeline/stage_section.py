"""Reader of the sections ``stages`` of a pipeline file, one stage at a time, and ``nodes``, which
run them.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from anabranch.pipeline import transforms
from anabranch.pipeline.document import MISSING, Document, Place, guess, shown
from anabranch.pipeline.model import HaMode, Stage
from anabranch.pipeline.offer_instances import OfferedStages
from anabranch.pipeline.parameters import read_parameters
from anabranch.pipeline.resources import STAGE_KEYS, read_resources
from anabranch.protocol import limits
from anabranch.protocol.control.placement import misplaced
from anabranch.protocol.stage.owners_checkpoint import Transfer

PASSIVE_REPLICAS_MIN: Final = 2
"""Minimum number of processes of a stage with ``ha: passive``: one runs, at least one stands by."""

STATE_HORIZON_MS_MAX: Final = 86_400_000
"""Longest ``state_horizon`` of a stage, in ms. Input of twice that time is kept for a process that
lost its disk.
"""

_NODE = re.compile(r"[a-z][a-z0-9_-]{0,62}(\.[0-9]{1,3})?\Z")
_STAGE_KEYS: Final = (
    "participant",
    "reads",
    "transform",
    "sql",
    "offered",
    "replicas",
    "ha",
    "state_horizon",
    "transfer",
    "on_missing_input",
    "version",
    "parameters",
    "resources",
    "shards",
    "shard_by",
    "halvings",
    "shed",
    "history",
)
_HA_MODES: Final = ("active", "passive", "upstream_backup", "amnesia")


def _sql(document: Document, raw: dict[str, Any], at: Place) -> str | None:
    if "sql" not in raw:
        return None
    if "transform" in raw:
        document.mistake((*at, "sql"), "a stage has either transform or sql; leave one of them out")
    return document.text(raw["sql"], (*at, "sql"))


def read_stage(
    document: Document, name: str, value: object, streams: list[str], offered: OfferedStages
) -> Stage:
    """Return the stage ``name``; valid only if there is no mistake. ``streams``: streams that it
    may read.
    """
    at: Place = ("stages", name)
    raw = document.mapping(value, at, _STAGE_KEYS)
    given = isinstance(value, dict)
    participant = (
        document.name(raw.get("participant", "local"), (*at, "participant"), "participant") or ""
    )
    reads = document.texts(raw.get("reads", MISSING), (*at, "reads"), "stream") if given else []
    for stream, place in reads:
        if stream not in streams:
            document.mistake(
                place, f"there is no source or stage {stream}; {guess(stream, streams)}"
            )
    if len(reads) > limits.INPUTS_MAX:
        document.mistake((*at, "reads"), f"at most {limits.INPUTS_MAX} inputs are possible")
    parameters = read_parameters(document, raw.get("parameters", {}), (*at, "parameters"))
    for key in parameters:
        if key in [stream for stream, _ in reads]:
            document.mistake(
                (*at, "parameters", key),
                f"{key} is an input of the stage already; give the parameter another name",
            )
    sql = _sql(document, raw, at)
    references = (
        _references(document, raw.get("transform", MISSING), (*at, "transform"))
        if given and "sql" not in raw and "offered" not in raw
        else []
    )
    # A host runs only its own offers in another's file, so it examines no code that the file names.
    for index, (reference, place) in enumerate(references if offered.host is None else ()):
        # The function has no argument for an input that does not exist: that is said already.
        alone = len(references) == 1 and all(stream in streams for stream, _ in reads)
        problem = transforms.check(
            reference,
            document.path,
            [stream for stream, _ in reads],
            parameters if alone and index == 0 else None,
        )
        if problem is not None:
            document.mistake(place, problem)
    replicas = document.integer(raw.get("replicas", 1), (*at, "replicas"), 1, limits.REPLICAS_MAX)
    ha, state_horizon_ms = _ha(document, raw, at, replicas)
    stage = Stage(
        name=name,
        participant=participant,
        reads=[stream for stream, _ in reads],
        transform=[reference for reference, _ in references],
        sql=sql,
        replicas=replicas,
        ha=ha,
        state_horizon_ms=state_horizon_ms,
        transfer=_transfer(document, raw, at, ha),
        on_missing_input=cast(
            "Any",
            document.choice(
                raw.get("on_missing_input", "process"),
                (*at, "on_missing_input"),
                ("process", "delay", "suspend"),
            ),
        ),
        version=document.integer(
            raw.get("version", 1), (*at, "version"), 1, limits.STAGE_VERSION_MAX
        ),
        parameters=parameters,
        history_ms=document.duration(raw.get("history", "0ms"), (*at, "history")) or 0,
        resources=read_resources(
            document, raw.get("resources", {}), (*at, "resources"), STAGE_KEYS
        ),
    )
    return offered.stage(stage, raw) if "offered" in raw else stage


def _ha(
    document: Document, raw: dict[str, Any], at: Place, replicas: int
) -> tuple[HaMode, int | None]:
    """Return the stage's mode of recovery and its state horizon in ms."""
    mode = cast("HaMode", document.choice(raw.get("ha", "active"), (*at, "ha"), _HA_MODES))
    alone = mode in ("upstream_backup", "amnesia")
    state_horizon_ms = (
        document.duration(raw["state_horizon"], (*at, "state_horizon"), 0, STATE_HORIZON_MS_MAX)
        if "state_horizon" in raw
        else None
    )
    if mode == "passive" and replicas < PASSIVE_REPLICAS_MIN:
        document.mistake(
            (*at, "ha"),
            "passive needs replicas: 2 or more: one runs, the others stand by; for a single process"
            " write ha: active",
        )
    if alone and replicas > 1:
        document.mistake((*at, "ha"), f"{mode} is one process; use replicas: 1, or ha: active")
    if alone and "state_horizon" not in raw:
        example = (
            "state_horizon: 10s for windows of 10 seconds, 0ms for a function of single rows"
            " that keeps event_time"
        )
        document.mistake(
            (*at, "ha"),
            f"{mode} needs the time after which a record no longer changes results; write"
            f" {example}",
        )
    return mode, state_horizon_ms


def _transfer(document: Document, raw: dict[str, Any], at: Place, ha: HaMode) -> Transfer:
    """Return how a node to which the stage moves gets its state."""
    named = document.choice(
        raw.get("transfer", Transfer.REBUILD), (*at, "transfer"), tuple(Transfer)
    )
    if named == Transfer.CHECKPOINT and ha != "upstream_backup":
        document.mistake(
            (*at, "transfer"),
            f"checkpoint is for stages with ha: upstream_backup, which begin from their input where"
            f" no checkpoint comes; with ha: {ha} leave it out",
        )
    return Transfer(named)


def _references(document: Document, value: object, at: Place) -> list[tuple[str, Place]]:
    """Return the functions of a chain with their places. Unlike ``texts``, it allows the same
    function twice.
    """
    if isinstance(value, str):
        return [(str(value), at)]
    if not isinstance(value, list) or not value:
        document.mistake(
            at,
            (
                "is missing; write module:function, or sql: with a query"
                if value is MISSING
                else f"module:function is wanted, not {shown(value)}"
            ),
        )
        return []
    found = [(document.text(item, (*at, index)), (*at, index)) for index, item in enumerate(value)]
    return [(text, place) for text, place in found if text is not None]


def read_nodes(document: Document, value: object, stages: dict[str, Stage]) -> dict[str, list[str]]:
    """Return the nodes that the file names, each with the replicas that it runs."""
    found: dict[str, list[str]] = {}
    for node, labels in document.mapping(value, ("nodes",), None).items():
        if not _NODE.match(node):
            document.mistake(
                ("nodes", node),
                f"{node!r} is no name of a node; use lower case letters, digits, '_' and '-',"
                " optionally followed by .NUMBER",
            )
        found[node] = (
            []
            if labels == []
            else [label for label, _ in document.texts(labels, ("nodes", node), "STAGE.REPLICA")]
        )
    for mistake in misplaced([stage.placed() for stage in stages.values()], found):
        given = found.get(mistake.node, [])
        if mistake.label in given:
            document.mistake(("nodes", mistake.node, given.index(mistake.label)), mistake.text)
        else:
            document.mistake(("nodes",), f"node {mistake.node}: {mistake.text}")
    return found


def check_cycles(document: Document, stages: dict[str, Stage]) -> None:
    """Report stages that read their own results, directly or through other stages."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            cycle = trail[trail.index(name) :]
            start = cycle.index(min(cycle, key=list(stages).index))
            cycle = [*cycle[start:], *cycle[: start + 1]]
            document.mistake(
                ("stages", cycle[0], "reads"),
                f"stages read each other in a circle: {' reads '.join(cycle)}",
            )
            return
        if name in done:
            return
        for stream in stages[name].reads:
            if stream in stages:
                visit(stream, [*trail, name])
        done.add(name)

    for name in stages:
        visit(name, [])
