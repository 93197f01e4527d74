"""A reader that needs deleted blocks requests them (ASK), and one replica of the stream recomputes
them.

Theory of operation. No reader acknowledges anything: each continues from its own position, and the
log has what comes after it (backtracking). Only if the log no longer has it - trimmed before a disk
was lost, or deleted by hand - the reader asks, on the control topic, for a range of buckets. One
replica of the stage that makes the stream takes the request. It makes the range again in a separate
query, from the input, an older checkpoint or its own blocks, and writes it as fresh blocks to its
block topic. If rows and digest of every bucket are those of the records before, it names the blocks
in the boundary log (``Recomputed``). From then on readers use these parts instead of the old ones.

A reply on the control topic decides only about asking again, and what people read. What a reader
may read is in the boundary log.

The states of a reader, per stream (``RecomputeRequests``):


======  ===========================================  ================================
state   event                                        action and next state
======  ===========================================  ================================
(none)  blocks are gone                              ask; SENT
SENT    a replica has taken it                       TAKEN
any     all replicas are unable                      REJECTED
any     a replica has recomputed it                  RECOMPUTED
any     its time is over, or other buckets are gone  ask under the next number; SENT
any     the blocks are there                         (none)
======  ===========================================  ================================

Invariants:
    RQ1 a reader has at most one request per stream; its numbers grow, over restarts too.
    RQ2 a request is repeated only when its time is over, or what is gone is not within it.
    RQ3 a request is for ASK_BUCKETS_MAX non-empty buckets at most (the shell counts them).
    RQ4 a replica works at one request at a time, and holds at most ASKS_MAX, the newest of each
        reader.
    RQ5 while a peer works, a replica begins nothing, until the peer has answered, or has not
        repeated for ASK_TAKEN_MS that it works.
    RQ6 replicas take their turn in the order of their names; one that has answered a request does
        not take it again.
    RQ7 a request that waited for ASK_AGAIN_MS after its turn is dropped: its reader has repeated
        it.
    RQ8 a replica that works at a request repeats so every ASK_TAKEN_EVERY_MS.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import Ask, AskOutcome, AskReply

ASKS_MAX: Final = 64
"""Recompute requests that a replica holds, one per reader: names come from a topic that many
may write.
"""

ASK_TURN_MS: Final = 3_000
"""Until the next replica of a stage takes a request that the one before has not taken."""

ASK_AGAIN_MS: Final = 15_000
"""A request that nobody has taken is repeated: it was lost, or nobody was there."""

ASK_TAKEN_EVERY_MS: Final = 5_000
"""A replica that works at a request repeats so after so long."""

ASK_TAKEN_MS: Final = 20_000
"""A request that a replica has taken is repeated when the replica has not repeated so for so long:
it has died, or hangs.
"""

ASK_REJECTED_MS: Final = 60_000
"""A request that no replica could serve is repeated: a replica may have come back that can."""


class RequestState(Enum):
    """Of one request, as its reader sees it."""

    SENT = auto()
    TAKEN = auto()
    RECOMPUTED = auto()
    REJECTED = auto()


_PATIENCE_MS = {
    RequestState.SENT: ASK_AGAIN_MS,
    RequestState.TAKEN: ASK_TAKEN_MS,
    RequestState.RECOMPUTED: ASK_AGAIN_MS,
    RequestState.REJECTED: ASK_REJECTED_MS,
}
_REJECTIONS = (AskOutcome.UNABLE, AskOutcome.DIFFERENT)


@dataclass(slots=True)
class _Request:
    ask: Ask
    state: RequestState
    since_ms: int
    taken_by: str = ""
    rejections: dict[str, str] = field(default_factory=dict)


class RecomputeRequests:
    """The recompute requests of one reader. ``now_ms`` is the wall clock; a jump of it makes
    a request come early or late, no more.
    """

    def __init__(self, reader: str, writers: Mapping[str, Collection[str]]) -> None:
        """``writers``: of every stream that can be recomputed, its replicas. Sources are not among
        them: nobody makes their rows again.
        """
        self._reader, self._writers = (
            reader,
            {stream: frozenset(those) for stream, those in writers.items()},
        )
        self._requests: dict[str, _Request] = {}
        self._number = 0

    def lacking(self, stream: str, first: int, last: int, now_ms: int) -> Ask | None:
        """Blocks of ``first..last`` of ``stream`` are gone: the request to send now, if any
        (RQ1, RQ2).
        """
        if stream not in self._writers:
            return None
        found = self._requests.get(stream)
        is_within = (
            found is not None and found.ask.bucket_first <= first and last <= found.ask.bucket_last
        )
        if (
            found is not None
            and is_within
            and 0 <= now_ms - found.since_ms < _PATIENCE_MS[found.state]
        ):
            return None
        self._number = max(self._number + 1, now_ms)
        ask = Ask(stream, self._reader, self._number, first, last, now_ms)
        self._requests[stream] = _Request(ask, RequestState.SENT, now_ms)
        return ask

    def there(self, stream: str) -> None:
        """All blocks of ``stream`` that are needed are there."""
        self._requests.pop(stream, None)

    def heard(self, answer: AskReply, now_ms: int) -> None:
        """Take note of a reply on the control topic."""
        found = self._requests.get(answer.stream)
        if found is None or answer.reader != self._reader or answer.number != found.ask.number:
            return
        if answer.replica not in self._writers[answer.stream]:
            return
        if answer.outcome is AskOutcome.TAKEN:
            found.state, found.taken_by = RequestState.TAKEN, answer.replica
        elif answer.outcome is AskOutcome.RECOMPUTED:
            found.state = RequestState.RECOMPUTED
        else:
            found.rejections[answer.replica] = answer.reason
            all_rejected = found.rejections.keys() == self._writers[answer.stream]
            found.state = RequestState.REJECTED if all_rejected else RequestState.SENT
        found.since_ms = now_ms

    def state(self, stream: str) -> RequestState | None:
        """Of the request for ``stream``; None: there is none."""
        found = self._requests.get(stream)
        return None if found is None else found.state

    def describe(self, stream: str) -> str:
        """For people: what has come of the request for ``stream``."""
        found = self._requests.get(stream)
        if found is None:
            return (
                f"no replica can recompute {stream}: it is a source"
                if stream not in self._writers
                else f"no request for {stream} yet"
            )
        what = f"buckets {found.ask.bucket_first}..{found.ask.bucket_last} of {stream}"
        reasons = "; ".join(
            f"replica {replica}: {reason}" for replica, reason in sorted(found.rejections.items())
        )
        return {
            RequestState.SENT: f"requested {what}" + (f" ({reasons})" if reasons else ""),
            RequestState.TAKEN: f"replica {found.taken_by} recomputes {what}",
            RequestState.RECOMPUTED: f"{what} were recomputed",
            RequestState.REJECTED: f"no replica can recompute {what}: {reasons}",
        }[found.state]


class RecomputeReplies:
    """The requests that one replica of a stage hears. ``now_ms`` is monotonic."""

    def __init__(self, stream: str, replica: str, replicas: Sequence[str]) -> None:
        """``replicas``: all of the stage, in the order of their turns."""
        self._stream = stream
        self._replica = replica
        self._turn_ms = list(replicas).index(replica) * ASK_TURN_MS
        self._peers = frozenset(replicas) - {replica}
        self._waiting: dict[str, tuple[Ask, int]] = {}
        self._working: Ask | None = None
        self._repeated_ms = 0
        """When it repeated last that it works at the request (RQ8)."""
        self._peer_until_ms: dict[str, int] = {}
        """Peers that work at a request, and until when that is believed (RQ5)."""

    def heard(self, entry: Ask | AskReply, now_ms: int) -> None:
        """Take note of a record of the control topic."""
        if entry.stream != self._stream:
            return
        if isinstance(entry, Ask):
            self._requested(entry, now_ms)
        elif entry.replica in self._peers:
            self._answered(entry, now_ms)

    def _requested(self, ask: Ask, now_ms: int) -> None:
        if not 0 < ask.bucket_first <= ask.bucket_last:
            return
        before = self._waiting.get(ask.reader)
        known = -1 if before is None else before[0].number
        if self._working is not None and self._working.reader == ask.reader:
            known = max(known, self._working.number)
        if ask.number > known and (before is not None or len(self._waiting) < ASKS_MAX):
            self._waiting[ask.reader] = ask, now_ms

    def _answered(self, answer: AskReply, now_ms: int) -> None:
        if answer.outcome is AskOutcome.TAKEN:
            self._peer_until_ms[answer.replica] = now_ms + ASK_TAKEN_MS
            return
        self._peer_until_ms.pop(answer.replica, None)
        waiting = self._waiting.get(answer.reader)
        if waiting is None or waiting[0].number != answer.number:
            return
        if answer.outcome in _REJECTIONS:
            self._waiting[answer.reader] = (
                waiting[0],
                min(waiting[1], now_ms - self._turn_ms),
            )  # no need to wait for that one's turn
        else:
            del self._waiting[answer.reader]

    def due(self, now_ms: int) -> Ask | None:
        """The request to take now, if any: say that it is taken, and ``done`` when it is
        answered.
        """
        if self._working is not None or any(
            now_ms < until for until in self._peer_until_ms.values()
        ):
            return None
        for reader, (ask, heard_ms) in list(self._waiting.items()):
            waited_ms = now_ms - heard_ms - self._turn_ms
            if waited_ms >= ASK_AGAIN_MS:
                del self._waiting[reader]  # RQ7
            elif waited_ms >= 0:
                del self._waiting[reader]
                self._working = ask
                self._repeated_ms = now_ms
                return ask
        return None

    def to_say_again(self, now_ms: int) -> Ask | None:
        """The request that it works at, if it is time to repeat so (RQ8)."""
        if self._working is None or now_ms - self._repeated_ms < ASK_TAKEN_EVERY_MS:
            return None
        self._repeated_ms = now_ms
        return self._working

    def done(self) -> None:
        """The request that was taken is answered."""
        self._working = None
