"""Identity of one life of a stream: the topic id of its boundary log.

Theory of operation. Epochs are offsets of the boundary log, and timelines, checkpoints, fences and
heartbeats are ordered by them. If the topic is deleted and created again, its offsets restart at 0,
and records that the former life left elsewhere would look newer for a long time. Kafka never reuses
a topic id. So all that outlives a process outside of the log names the life in which it was
written, and counts only in that life.

A topic may be recreated at any time. A process that reads the same identity before and after the
begin of its epoch has begun in that life.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from anabranch.protocol.errors import Unavailable

if TYPE_CHECKING:
    from anabranch.ports import EventLog


def life_of(log: EventLog, topic: str) -> str:
    """Return the identity of the life of the stream whose boundary log is ``topic``.

    Raises:
        Unavailable: there is no such topic, or no answer.
    """
    with closing(log.admin()) as admin:
        found = admin.topic_ids([topic])
    if topic not in found:
        raise Unavailable(f"topic {topic} does not exist: `anabranch up` creates it")
    return found[topic]


def check_life(log: EventLog, topic: str, life: str) -> None:
    """Check that ``topic`` is still the one of ``life``. Call it when an epoch has begun there.

    Raises:
        Unavailable: the topic was created anew, is gone, or the broker does not answer.
    """
    if life_of(log, topic) != life:
        raise Unavailable(
            f"topic {topic} was deleted and made anew while a process began in it: the process"
            " starts again"
        )
