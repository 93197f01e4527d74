"""Identity of one life of a stream: that of its boundary log's topic.

Theory of operation. Epochs are offsets of the boundary log, and so is all that is ordered by them:
timelines, checkpoints, fences, heartbeats. Where the topic is deleted and made anew, by a reset, by
hand, or with a new broker, its offsets begin again, and whatever the former life left elsewhere
would be the newest for a long time. Kafka gives each topic an id that never comes again. So what
outlives a process outside of the log says in which life it was written, and counts in that one
alone.

A topic may be made anew at any time. A process that asks for the identity before its epoch begins,
and gets the same answer afterwards, has begun in that life.
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
        Unavailable: it was made anew meanwhile, is gone, or there is no answer.
    """
    if life_of(log, topic) != life:
        raise Unavailable(
            f"topic {topic} was deleted and made anew while a process began in it: the process"
            " starts again"
        )
