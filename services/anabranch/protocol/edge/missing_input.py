"""Input that is gone before its source has read it: which offsets, and where reading continues once
an operator has given them up.

Theory of operation. The input topics are the source's persistent log, and their retention is the
user's. So a source that was away for longer than that, or was pushed back, can find that the offset
at which it continues does not exist any more. It must neither skip what is missing silently nor end
for ever: it waits, says which offsets of which partition are missing, and continues after an
operator has given them up. That decision is a record of the source's boundary log, whose positions
are those behind the missing offsets (``given_up_missing``). It names the buckets that may lack
them.

The missing offsets follow from the recorded position alone. It is behind all records that the
source got *or would never get*: while a partition has nothing to read, the position moves past
transaction markers and records of aborted transactions, and is recorded. Those that retention
deletes before the position is recorded count as missing, since they cannot be told from records any
more.

A topic that is deleted and created again has another identity. Its offsets begin anew, so the
recorded ones mean nothing in it. Records that the former topic still had behind the position are
gone, and their number is unknown: even if everything had been read at some moment, a producer may
have written since. So an operator has to decide about this, too.

Invariants:
    MI1 a position is used only in the topic in which it was recorded, where it is known which that
        was.
    MI2 ``missing`` is empty if, and only if, each recorded position can be read on from.
    MI3 after ``given_up_missing`` nothing is missing in the same input, no partition goes back in
        its topic, and one of which nothing was missing stays where it is.
    MI4 input that was missing counts as missing until the source has begun anew: that it cannot be
        asked for meanwhile does not bring it back.
    MI5 a source that waits tries to begin every INPUT_AGAIN_MS, from the last failure on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from anabranch.protocol.errors import InputAwaited, InputMissing
from anabranch.protocol.log.records import InputPosition

INPUT_AGAIN_MS: Final = 2_000
"""Interval between attempts to begin while a source's input is missing, in ms. Each attempt takes a
few requests to the broker.
"""

NAMED_MAX: Final = 5
"""Missing ranges that a message names; further ones are counted."""


class Lost(StrEnum):
    """Reason why input is missing."""

    DELETED = "deleted"
    """Retention, or a user, deleted the records before the source read them."""
    CUT = "cut"
    """The partition ends before the position: an unclean leader election has cut it. Records that
    were written since then below the position cannot be told from those that were read.
    """
    REPLACED = "replaced"
    """The topic was deleted and created again."""


@dataclass(frozen=True, slots=True)
class InputState:
    """Input topics as the broker describes them now."""

    offsets: Mapping[tuple[str, int], tuple[int, int]]
    """First offset and end of each partition."""
    topic_ids: Mapping[str, str]
    """Identity of each topic; a topic is missing where the broker does not tell it."""


@dataclass(frozen=True, slots=True)
class MissingInput:
    """Range of offsets of one partition that a source should read and that no longer exist."""

    topic: str
    partition: int
    lost: Lost
    first: int
    """Offset at which the source continues."""
    next: int
    """Offset at which it can continue in the existing records."""

    def __str__(self) -> str:
        at = f"{self.topic}[{self.partition}]"
        if self.lost is Lost.REPLACED:
            return (
                f"{at}: the topic was deleted and created again; of the former one everything from"
                f" offset {self.first} on is gone, an unknown number of records"
            )
        if self.lost is Lost.CUT:
            return (
                f"{at}: it ends at offset {self.next}, and was read up to {self.first} before: the"
                f" log was cut (unclean leader election); up to {self.first - self.next} records"
                " may be missing"
            )
        return (
            f"{at}: offsets {self.first} to {self.next - 1} were deleted before they were read, at"
            f" most {self.next - self.first} records"
        )


def missing(positions: Iterable[InputPosition], now: InputState) -> list[MissingInput]:
    """Return what is missing of the input behind ``positions``, of the topics in ``now``."""
    topics = {topic for topic, _ in now.offsets}
    found: list[MissingInput] = []
    for each in positions:
        if each.topic not in topics:
            continue
        first, end = now.offsets.get((each.topic, each.partition), (0, 0))
        known, is_now = each.topic_id, now.topic_ids.get(each.topic, "")
        if known and is_now and known != is_now:
            lost, after = Lost.REPLACED, first
        elif each.offset_next < first:
            lost, after = Lost.DELETED, first
        elif each.offset_next > end:
            lost, after = Lost.CUT, end
        else:
            continue
        found.append(MissingInput(each.topic, each.partition, lost, each.offset_next, after))
    return found


def replaced_topic(read: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return, for people, which topic was deleted, or created again, since it was read; empty: none
    was (MI1).

    Args:
        read: Identity of each topic that is read, by its name, when the reading began.
        now: Identity of each topic that exists now, by its name.
    """
    for topic, identity in read.items():
        if now.get(topic) != identity:
            what = "was created again" if topic in now else "does not exist any more"
            return f"topic {topic} {what}"
    return ""


def given_up_missing(
    positions: Sequence[InputPosition], now: InputState
) -> tuple[InputPosition, ...]:
    """Return ``positions`` with each one moved behind what is missing (MI3).

    Partitions that a topic does not have any more, since it was created again with fewer, are left
    out.
    """
    moved = {(each.topic, each.partition): each for each in missing(positions, now)}
    topics = {topic for topic, _ in now.offsets}
    result: list[InputPosition] = []
    for each in positions:
        at = each.topic, each.partition
        if each.topic in topics and at not in now.offsets:
            continue
        if at in moved:
            topic_id = now.topic_ids.get(each.topic, each.topic_id)
            result.append(replace(each, offset_next=moved[at].next, topic_id=topic_id))
        else:
            result.append(each)
    return tuple(result)


def described(source: str, found: Sequence[MissingInput]) -> str:
    """Return the explanation, for people, why ``source`` waits."""
    names = "; ".join(str(each) for each in found[:NAMED_MAX])
    more = f"; and {len(found) - NAMED_MAX} more partitions" if len(found) > NAMED_MAX else ""
    return (
        f"source {source} waits, since input is missing: {names}{more}. If it cannot be brought"
        f" back: 'anabranch give-up {source} --missing' goes on without it"
    )


class InputWait:
    """Wait of a source for its input. ``now_ms`` is monotonic. Not thread-safe."""

    def __init__(self) -> None:
        """Start without a wait."""
        self.why = ""
        """Reason for which the source waits; empty: it does not wait."""
        self.is_missing = False
        """Whether the input is gone, as far as is known (MI4)."""
        self._try_next_ms = 0

    def failed(self, error: InputAwaited, now_ms: int) -> bool:
        """Begin to wait, or continue, because the source could not read, or begin. Return whether
        the reason is a new one.
        """
        is_news = str(error) != self.why
        self.why = str(error)
        self.is_missing = self.is_missing or isinstance(error, InputMissing)
        self._try_next_ms = now_ms + INPUT_AGAIN_MS
        return is_news

    def is_due(self, now_ms: int) -> bool:
        """Return whether to try to begin now (MI5)."""
        return now_ms >= self._try_next_ms

    def over(self) -> None:
        """End the wait: the source has begun. Idempotent."""
        self.why, self.is_missing = "", False
