"""The section ``federation`` of a pipeline file: the federation that its owner belongs to,
partners, hosts, offers, and the owner's trading policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from anabranch.pipeline.document import MISSING, Document, Place, shown
from anabranch.pipeline.model import AgentPolicy, Federation, Stage
from anabranch.pipeline.offers import own_offers
from anabranch.pipeline.stage_shards import shards_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.costs import CornerCost

FEDERATION_KEYS: Final = (
    "name",
    "participant",
    "auditor",
    "partners",
    "hosts",
    "agent",
    "offers",
    "offered",
)
_OWNERS_ALONE: Final = ("hosts", "agent", "offers")
"""Keys that count for the owner alone: a participant that runs its offer in another's pipeline
ignores them in that file.
"""
AGENT_KEYS: Final = (
    "capacity",
    "scale",
    "cost",
    "margin_permille",
    "recall_permille",
    "offer_every",
    "answer_within",
    "rest",
    "backoff",
    "take_up",
)
_CAPACITY_MAX: Final = 10**9
_SCALE_MAX: Final = 10**12
_PERMILLE_MAX: Final = 10_000


def federation(
    file: Document,
    value: object,
    stages: Mapping[str, Stage],
    *,
    host: str,
) -> Federation | None:
    """Return the section ``federation``; None: there is none, or it has a mistake.

    Args:
        file: The document; takes the mistakes.
        value: Content of the section.
        stages: Stages of the pipeline.
        host: Participant other than the owner that reads the file to run its offers there; empty:
            the owner reads it.
    """
    if value is MISSING:
        return None
    raw = file.mapping(value, ("federation",), FEDERATION_KEYS)
    if host:
        raw = {key: entry for key, entry in raw.items() if key not in _OWNERS_ALONE}
    name, participant = (
        file.name(raw.get(key, MISSING), ("federation", key), kind)
        for key, kind in (("name", "federation"), ("participant", "participant"))
    )
    auditor = (
        file.name(raw["auditor"], ("federation", "auditor"), "participant")
        if "auditor" in raw
        else ""
    )
    if name is None or participant is None or auditor is None:
        return None
    return Federation(
        name=name,
        participant=participant,
        auditor=auditor,
        partners=_partners(file, raw.get("partners", {}), participant, stages),
        hosts=_hosts(file, raw.get("hosts", {}), file.path.resolve().parent),
        agent=_agent(file, raw["agent"], participant) if "agent" in raw else None,
        host=host,
        offers=own_offers(file, raw.get("offers", {}), participant),
    )


def _partners(
    file: Document, value: object, participant: str, stages: Mapping[str, Stage]
) -> dict[str, list[str]]:
    """Return which partners may run which stages of this pipeline."""
    owners = {stage.participant for stage in stages.values()}
    found = {}
    for partner, entry in file.mapping(value, ("federation", "partners"), None).items():
        at: Place = ("federation", "partners", partner)
        file.name(partner, at, "participant")
        if partner in owners:
            file.mistake(
                at,
                f"{partner} has stages in this pipeline, so it is no partner in it; leave it out"
                " here",
            )
        named = [
            (shard, place)
            for stage, place in file.texts(entry, at, "stage")
            for shard in (shards_of(stage, stages) or [stage])
        ]
        for stage, place in named:
            if stage not in stages:
                file.mistake(place, f"there is no stage {stage}; there are {', '.join(stages)}")
            elif stages[stage].participant != participant:
                file.mistake(
                    place,
                    f"{stage} is a stage of {stages[stage].participant}, and {participant} trades"
                    " only its own; leave it out here",
                )
            elif len(stages[stage].process_ids()) > 1:
                file.mistake(
                    place,
                    f"{stage} has {len(stages[stage].process_ids())} replicas, and a stage that"
                    " partners run has one: write replicas: 1, and your own node takes it back if"
                    " the partner's fails; or leave it out here",
                )
            elif stages[stage].ha != "upstream_backup":
                file.mistake(
                    place,
                    f"{stage} has ha: {stages[stage].ha}, and a stage that partners run makes its"
                    " state anew from its input, since owners share no checkpoints: write ha:"
                    " upstream_backup and its state_horizon, the time after which a record no"
                    " longer changes results; or leave it out here",
                )
        found[partner] = [stage for stage, _ in named]
    return found


def _hosts(file: Document, value: object, folder: Path) -> dict[str, Path]:
    """Return the pipelines whose stages may run here, each with this participant's copy of its
    file.
    """
    found = {}
    for pipeline, entry in file.mapping(value, ("federation", "hosts"), None).items():
        at: Place = ("federation", "hosts", pipeline)
        file.name(pipeline, at, "pipeline")
        named = file.text(entry, at)
        if named is not None and not (folder / named).is_file():
            file.mistake(
                at,
                f"there is no file {named} in the folder of this file; put your copy of the"
                " pipeline's file there",
            )
        found[pipeline] = folder / (named or "")
    return found


def _agent(file: Document, value: object, participant: str) -> AgentPolicy:
    """Return the trading policy: what load costs, and how often the agent trades."""
    at: Place = ("federation", "agent")
    raw = file.mapping(value, at, AGENT_KEYS)

    def length(key: str, default: str) -> int:
        return file.duration(raw.get(key, default), (*at, key), 1) or 0

    def permille(key: str, default: int) -> int:
        return file.integer(raw.get(key, default), (*at, key), 0, _PERMILLE_MAX)

    corners = _corners(file, raw["cost"], (*at, "cost")) if "cost" in raw else ()
    scale = raw.get("scale", 1 if "cost" in raw else MISSING)
    return AgentPolicy(
        capacity_units=file.integer(
            raw.get("capacity", MISSING), (*at, "capacity"), 2, _CAPACITY_MAX
        ),
        scale_micro=file.integer(scale, (*at, "scale"), 1, _SCALE_MAX),
        corners=corners,
        margin_permille=permille("margin_permille", 0),
        recall_permille=permille("recall_permille", 50),
        offer_every_ms=length("offer_every", "2s"),
        answer_within_ms=length("answer_within", "3s"),
        rest_ms=length("rest", "5s"),
        backoff_ms=length("backoff", "1m"),
        take_up=_take_up(file, raw["take_up"], participant) if "take_up" in raw else (),
    )


def _take_up(file: Document, value: object, participant: str) -> tuple[str, ...]:
    """Return the participants whose suggested contracts the agent takes up."""
    found = []
    for sender, place in file.texts(value, ("federation", "agent", "take_up"), "participant"):
        file.name(sender, place, "participant")
        if sender == participant:
            file.mistake(place, f"{participant} does not pay itself; name other participants")
        found.append(sender)
    return tuple(found)


def _corners(file: Document, value: object, at: Place) -> tuple[tuple[int, int], ...]:
    """Return the corners of a cost curve of straight lines, which the operator states."""
    found = file.mapping(value, at, ("corners",)).get("corners", MISSING)
    at = (*at, "corners")
    if not isinstance(found, list) or not found:
        file.mistake(
            at, "a list of [units, micro-units per second for each unit from there on] is wanted"
        )
        return ()
    corners = []
    for number, each in enumerate(found):
        if not isinstance(each, list) or len(each) != len(("units", "slope")):
            file.mistake((*at, number), f"[units, micro-units] is wanted, not {shown(each)}")
            return ()
        units = file.integer(each[0], (*at, number, 0), 0, _CAPACITY_MAX)
        corners.append((units, file.integer(each[1], (*at, number, 1), 0, _SCALE_MAX)))
    try:
        return CornerCost(tuple(corners)).corners
    except ConfigurationError as error:
        file.mistake(at, str(error))
        return ()
