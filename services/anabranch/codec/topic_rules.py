"""Comparison of an existing topic with the settings that it must have, and advice about the
differences.

A topic may keep records longer, accept larger ones or demand more copies than it must. Only
settings that guarantee less are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from anabranch.codec.catalog import TopicSettings

_UNBOUNDED: Final = "-1"
_AT_LEAST: Final = {
    "retention.ms": "records would be deleted before they are read",
    "retention.bytes": "records would be deleted before they are read",
    "max.message.bytes": "large records would be rejected",
    "min.insync.replicas": "a record would count that fewer brokers have, and be lost with them",
}
"""Consequence of a lower value, by setting. -1 means unlimited."""
_EXACTLY: Final = {
    "cleanup.policy": "records would be deleted that are needed, or kept for ever",
    "unclean.leader.election.enable": (
        "acknowledged records would be lost with the broker that leads"
    ),
    "message.timestamp.type": "times would be another clock's",
}
"""Consequence of a different value, by setting. Settings in neither table cost only space or time,
and are not reported.
"""

_BROKERS_FOR_COPIES: Final = 3
"""Minimum number of brokers for copies: of three copies one may be missing; with fewer brokers
there is no such number.
"""
_SHOWN_MAX: Final = 3

USERS_TOO: Final = frozenset(
    {"cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable"}
)
"""Settings of a user's own topic on which "nothing is lost" depends; retention and record sizes are
the user's choice.
"""


def of_users(topic: TopicSettings, partitions: int) -> TopicSettings:
    """Return the settings that an existing topic of a user, which has ``partitions``, must have."""
    return replace(
        topic,
        partitions=partitions,
        config={name: value for name, value in topic.config.items() if name in USERS_TOO},
    )


def wrong_for_rejected(topic: str, applied: Mapping[str, str]) -> str:
    """Return why ``topic`` must not hold rejected records, with how to mend it; empty: it may.

    A compacted topic keeps one record of a key, and none that has no key may be written to it.

    Args:
        topic: Its name.
        applied: Settings that it has, with the broker's defaults.
    """
    policy = applied.get("cleanup.policy", "delete")
    if "compact" not in policy:
        return ""
    return (
        f"topic {topic} has cleanup.policy={policy}: of rejected records with one key only the"
        " last would stay, and nothing may be dropped; set cleanup.policy=delete"
    )


def kept_ms(applied: Mapping[str, str]) -> int | None:
    """Return for how long a topic with the settings ``applied`` keeps its records, in ms; None if
    for ever, or unknown.
    """
    retention_ms = int(applied.get("retention.ms", _UNBOUNDED))
    return None if retention_ms < 0 else retention_ms


def differences(
    topic: TopicSettings, partitions: int | None, copies: int | None, applied: Mapping[str, str]
) -> list[str]:
    """Return sentences about settings below their minimum, each with the consequence and remedy.

    Args:
        topic: Settings that the topic must have.
        partitions: Number of partitions that it has.
        copies: Number of copies of each partition; None: unknown.
        applied: Settings that it has, with the broker's defaults.
    """
    found = []
    if partitions != topic.partitions:
        found.append(
            f"topic {topic.name} has {partitions} partitions instead of {topic.partitions}: what is"
            " in it may be found nowhere else; delete it if it holds nothing that is needed, and"
            " have it made again"
        )
    if copies is not None and copies < topic.replication:
        found.append(
            f"topic {topic.name} has {copies} copies instead of {topic.replication}: it is lost, or"
            " cannot be written, with fewer brokers; mend it with kafka-reassign-partitions.sh"
        )
    for name, wanted in sorted(topic.config.items()):
        actual = applied.get(name)
        follows = _AT_LEAST.get(name) or _EXACTLY.get(name)
        if (
            follows is None
            or (name in _AT_LEAST and _enough(actual, wanted))
            or _same(actual, wanted)
        ):
            continue
        # Brackets keep a list in one piece: kafka-configs.sh takes a comma as the end of a value.
        value = f"[{wanted}]" if "," in wanted else wanted
        found.append(
            f"topic {topic.name} has {name}={actual} instead of {wanted}: {follows}; mend it with"
            f" kafka-configs.sh --alter --entity-type topics --entity-name {topic.name}"
            f" --add-config {name}={value}"
        )
    return found


def too_few_copies(copies: Mapping[str, int], brokers: int) -> list[str]:
    """Return the warning about topics that were just created with ``copies`` each on a cluster that
    could keep more; at most one sentence.
    """
    single = sorted(name for name, count in copies.items() if count == 1)
    if brokers < _BROKERS_FOR_COPIES or not single:
        return []
    shown = ", ".join(single[:_SHOWN_MAX]) + (", ..." if len(single) > _SHOWN_MAX else "")
    what = (
        f"{len(single)} new topics have one copy each, though the cluster has {brokers} brokers"
        f" ({shown}): they are lost with one disk"
    )
    return [
        (
            f"{what}. Where nothing may be lost, delete them and have them made again with"
            " --replication 3"
        )
    ]


def _enough(actual: str | None, wanted: str) -> bool:
    """Return whether a setting is a number that is at least ``wanted``."""
    if actual is None:
        return False
    return actual == _UNBOUNDED or (wanted != _UNBOUNDED and int(actual) >= int(wanted))


def _same(actual: str | None, wanted: str) -> bool:
    """Return whether two values, or lists of them, mean the same."""
    return actual is not None and sorted(actual.split(",")) == sorted(wanted.split(","))
