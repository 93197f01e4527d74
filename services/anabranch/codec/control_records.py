"""Heartbeats, fences, trim points, recompute requests and replies, alarms, delivery progress,
moves, restatements, steps of splits and reports of nodes as bytes: Avro single objects, read as
strictly as the boundary records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    DeliveryProgress,
    Fence,
    Heartbeat,
    Move,
    NodeReport,
    ReplicaLoad,
    Restated,
    SplitStep,
    Step,
    TrimPoint,
    Vote,
)
from anabranch.protocol.errors import RemoteProtocolError

ALARM_CHARACTERS_MAX: Final = 20_000
"""Maximum length of an alarm's text, in characters. A longer one, such as a traceback of a deep
recursion, is cut, so that an alarm always fits its topic.
"""

_KINDS: Final[dict[str, type[ControlRecord]]] = {
    "heartbeat": Heartbeat,
    "fence": Fence,
    "trim_point": TrimPoint,
    "delivery_progress": DeliveryProgress,
    "alarm": Alarm,
    "ask": Ask,
    "ask_reply": AskReply,
    "move": Move,
    "restated": Restated,
    "node_report": NodeReport,
    "split_step": SplitStep,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_TEXTS: Final = frozenset({"text", "reason", "withdrawn", "because"})
"""Fields with text for people, which is cut to fit. All other texts are names."""


def encode(entry: ControlRecord) -> bytes:
    """Return the value of a control record. Texts for people are cut to fit.

    Raises:
        LocalProtocolError: the record does not fit its schema or its limit: a bug here.
    """
    value = {
        field.name: _plain(field.name, getattr(entry, field.name))
        for field in dataclasses.fields(entry)
    }
    return single_object.write(
        catalog().newest(_NAMES[type(entry)]), value, limits.CONTROL_BYTES_MAX
    )


def decode(value: bytes | None) -> ControlRecord:
    """Return the control record in ``value``.

    Raises:
        RemoteProtocolError: ``value`` is no control record, is torn, unknown or too large, or has
            a longer name than any of ours.
    """
    record, fields = single_object.read(
        value, "a control topic", _KINDS, limits.CONTROL_BYTES_MAX, limits.CONTROL_ITEMS_MAX
    )
    kind: Callable[..., ControlRecord] = _KINDS[record.name]
    for schema, found in zip(record.avro["fields"], fields, strict=True):
        if (
            isinstance(found, str)
            and len(found) > limits.NAME_CHARACTERS_MAX
            and schema["name"] not in _TEXTS
        ):
            raise RemoteProtocolError(
                f"a {record.name} whose {schema['name']} has {len(found)} characters"
            )
    if kind is AskReply:
        stream, replica, reader, number, outcome, *rest = fields
        return AskReply(stream, replica, reader, number, AskOutcome(outcome), *rest)
    if kind is Fence:
        stage, replica, epoch, bucket, votes, *rest = fields
        return Fence(stage, replica, epoch, bucket, tuple(_vote(*vote) for vote in votes), *rest)
    if kind is NodeReport:
        node, written_ms, cores, replicas = fields
        return NodeReport(node, written_ms, cores, tuple(_load(*each) for each in replicas))
    if kind is SplitStep:
        shard, step, *rest = fields
        return SplitStep(shard, Step(step), *rest)
    return kind(*fields)


def _load(stage: str, replica: str, state: str, *rest: Any) -> ReplicaLoad:
    longest = max(map(len, (stage, replica, state)))
    if longest > limits.NAME_CHARACTERS_MAX:
        raise RemoteProtocolError(f"a load of a replica of which a name has {longest} characters")
    return ReplicaLoad(stage, replica, state, *rest)


def _vote(replica: str, epoch: int, rows: int, digest: bytes) -> Vote:
    if len(replica) > limits.NAME_CHARACTERS_MAX:
        raise RemoteProtocolError(f"a vote of a replica whose id has {len(replica)} characters")
    return Vote(replica, epoch, rows, int.from_bytes(digest, "big"))


def key_of(entry: ControlRecord) -> bytes:
    """Return the record's key in a compacted topic: compaction keeps the last record of each
    process, and about each stream. A fence has a key of its own.
    """
    if isinstance(entry, Heartbeat):
        return f"heartbeat:{entry.service}:{entry.name}:{entry.replica}".encode()
    if isinstance(entry, Fence):
        return f"fence:{entry.stage}:{entry.replica}:{entry.epoch}".encode()
    if isinstance(entry, Ask):
        return f"ask:{entry.stream}:{entry.reader}".encode()
    if isinstance(entry, AskReply):
        return f"ask_reply:{entry.stream}:{entry.reader}:{entry.replica}".encode()
    if isinstance(entry, Move):
        return f"move:{entry.stage}:{entry.replica}".encode()
    if isinstance(entry, NodeReport):
        return f"node_report:{entry.node}".encode()
    if isinstance(entry, Restated):
        return f"restated:{entry.stage}:{entry.version}".encode()
    names = {
        "trim_point": "stream",
        "delivery_progress": "output",
        "alarm": "stream",
        "split_step": "shard",
    }
    kind = _NAMES[type(entry)]
    return f"{kind}:{getattr(entry, names[kind])}".encode()


def _plain(name: str, value: Any) -> Any:
    """Return a field's value in the form that the Avro schema wants."""
    if name in ("positions", "inherited"):
        return [{"partition": partition, "offset": offset} for partition, offset in value]
    if name == "votes":
        return [
            {**dataclasses.asdict(vote), "digest": (vote.digest % 2**64).to_bytes(8, "big")}
            for vote in value
        ]
    if name == "replicas":
        return [dataclasses.asdict(load) for load in value]
    if isinstance(value, (AskOutcome, Step)):
        return value.value
    return value[:ALARM_CHARACTERS_MAX] if name in _TEXTS else value
