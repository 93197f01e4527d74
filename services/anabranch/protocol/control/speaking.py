"""Which process may say what on the control topics.

Theory of operation. Each process has a control topic that the broker lets only this process write,
and the manager has two more. So the topic of a record tells its writer; what the record says of its
writer proves nothing. A reader takes a record only from the topic of a process that may say it, and
counts the others.


Invariants:
    SK1 a heartbeat counts only from the process that speaks for its service, name and replica: of a
        passive stage, each process of the stage speaks for the one replica, since any of them may
        be it.
    SK2 a recompute request counts only from the reader that it names, a reply only from a process
        of the stream's stage that speaks for the replica.
    SK3 trim points count only from the manager's topic, which holds nothing else than these and its
        own heartbeats; fences only from the topic of fences, which holds nothing else.
    SK4 of another pipeline's processes only heartbeats count, under the name that their stream has
        here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.protocol.control.records import (
    Ask,
    AskReply,
    ControlRecord,
    Fence,
    Heartbeat,
    TrimPoint,
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who writes one control topic."""

    beats: frozenset[tuple[str, str, str]]
    """(service, name, replica) for which it speaks."""
    reader: str = ""
    """As which it asks; empty: it asks for nothing."""
    answers: frozenset[tuple[str, str]] = frozenset()
    """(stream, replica) for which it answers."""
    trims: bool = False
    """It is the manager, and says what may be trimmed."""
    fences: bool = False
    """It is the manager, and says who must end."""
    known_as: str = ""
    """What it beats for is called so here: of a stream of another pipeline."""

    @property
    def is_manager(self) -> bool:
        """Whether the manager writes the topic."""
        return self.trims or self.fences

    def heard(self, entry: ControlRecord) -> ControlRecord | None:
        """``entry``, which stands in its topic, as it counts here; None: it does not."""
        if not self.may_say(entry):
            return None
        if self.known_as and isinstance(entry, Heartbeat):
            return replace(entry, name=self.known_as)
        return entry

    def may_say(self, entry: ControlRecord) -> bool:
        """Whether ``entry`` counts when it stands in its topic."""
        if isinstance(entry, Heartbeat):
            return (entry.service, entry.name, entry.replica) in self.beats
        if isinstance(entry, Ask):
            return bool(self.reader) and entry.reader == self.reader
        if isinstance(entry, AskReply):
            return (entry.stream, entry.replica) in self.answers
        if isinstance(entry, Fence):
            return self.fences
        return self.trims and isinstance(entry, TrimPoint)
