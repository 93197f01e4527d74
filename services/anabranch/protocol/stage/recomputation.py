"""Recomputation of deleted blocks: a reader that needs them requests them (ASK), and one replica of
the stream recomputes them. Decides when requests are sent and taken, what the query runs, and
whether its result may be used.

Theory of operation. No reader acknowledges anything: each continues from its own position, and the
log has what comes after it (backtracking). Only if the log no longer has it - trimmed before a disk
was lost, or deleted by hand - the reader asks, on the control topic, for a range of buckets. One
replica of the stage that makes the stream takes the request. It makes the range again in a separate
query, from the input, an older checkpoint or its own blocks, and writes it as fresh blocks to its
block topic. If rows and digest of every bucket are those of the records before, it names the blocks
in the boundary log (``Recomputed``). From then on readers use these parts instead of the old ones.

A reply on the control topic decides only whether the reader asks again, and what people see. The
boundary log alone says which blocks a reader may read.

*The request.* Its state follows from the last reply alone: none yet, taken by a replica, recomputed
by one, or rejected by all. The state decides how long the reader waits before it repeats the
request (``RecomputeRequests``). The request ends when the blocks exist.

*The query* runs the stage's function over the same stable input (``Recomputation``): a stateless
one begins right before the first bucket that is wanted, a stateful one in a copy of a checkpoint
from before it, or at the very beginning. A stateless function may give its rows a later time than
they came with. Then rows of wanted buckets come from skipped ones, the comparison finds other rows,
and the function is run once more as a stateful one. The stable timeline is not touched: the query
appends no boundary record, its batches have no ids. Only its parts of wanted buckets are kept. When
it has closed the last of them, rows and digest of each are compared with those that the boundary
log has: all must be the same, or nothing is used.

Invariants:
    RQ1 a reader has at most one request per stream; its numbers grow, over restarts too.
    RQ2 a request is repeated only when its time is over, or what is gone is not within it.
    RQ3 a request is for ASK_BUCKETS_MAX non-empty buckets at most (the shell counts them).
    RQ4 a replica works on one request at a time, and holds at most ASKS_MAX, the newest of each
        reader.
    RQ5 while a peer works on a request, a replica begins none, until the peer has answered, or has
        not repeated for ASK_TAKEN_MS that it works.
    RQ6 replicas take their turn in the order of their names; one that has answered a request does
        not take it again.
    RQ7 a request that waited for ASK_AGAIN_MS after its turn is dropped: its reader has repeated
        it.
    RQ8 a replica that works on a request repeats that it does every ASK_TAKEN_EVERY_MS.
    RC1 input buckets are taken as every plan takes them (PN1-PN4), up to the last bucket that is
        wanted and not beyond.
    RC2 a stateless query skips what comes before the first bucket that is wanted; a stateful one
        skips nothing, nor does the second one of a stateless function, after a first one that made
        other rows.
    RC3 nothing may be used before every wanted bucket is closed by the query.
    RC4 a bucket whose rows or digest differ makes the whole result void.
    RC5 a ``Recomputed`` holds whole buckets, and no more than PARTS_PER_RECORD_MAX parts.
    RC6 a query that skips nothing begins in a checkpoint at a batch all of whose buckets are before
        the range and stable (``protocol.stage.recovery``), the newest that is whole; else at the
        beginning. Of its input nothing may be gone from there to the end of the range.
    RC7 a replica recomputes no bucket of which it has an equal version with all its blocks: it
        names that version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BATCH_ROWS_MAX, PARTS_PER_RECORD_MAX
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import Part, Recomputed
from anabranch.protocol.log.timeline import (
    Answer,
    Copy,
    Create,
    CutBack,
    FindBatches,
    FindMissing,
    FindNewest,
    FindWhole,
    Step,
    Timeline,
    batches_of,
)
from anabranch.protocol.stage.batch_size import first_rows_max
from anabranch.protocol.stage.planner import Plan, PlanTraits, QueryPosition, TakenBucket, next_plan

ASKS_MAX: Final = 64
"""Maximum number of recompute requests that a replica holds, one per reader. Reader names come from
a topic that many may write to.
"""

ASK_TURN_MS: Final = 3_000
"""Delay between the turns of two replicas of a stage, in ms: the next one takes a request that the
previous one has not taken.
"""

ASK_AGAIN_MS: Final = 15_000
"""Time after which a reader repeats a request that no replica has taken, in ms: the request was
lost, or no replica was running.
"""

ASK_TAKEN_EVERY_MS: Final = 5_000
"""Interval at which a working replica repeats that it has taken a request, in ms."""

ASK_TAKEN_MS: Final = 20_000
"""Time without such a repetition, in ms, after which the reader repeats a taken request: the
replica has died, or hangs.
"""

ASK_REJECTED_MS: Final = 60_000
"""Time after which a reader repeats a request that no replica could serve, in ms: one that can may
be running by then.
"""


class RequestState(Enum):
    """State of one request, as its reader knows it."""

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
_HEARD = {
    AskOutcome.TAKEN: RequestState.TAKEN,
    AskOutcome.RECOMPUTED: RequestState.RECOMPUTED,
    AskOutcome.UNABLE: RequestState.SENT,
    AskOutcome.DIFFERENT: RequestState.SENT,
}
"""State of a request after each kind of reply; REJECTED instead once all replicas have
rejected it.
"""


@dataclass(slots=True)
class _Request:
    """Request that is under way, with the replies so far."""

    ask: Ask
    state: RequestState
    since_ms: int
    taken_by: str = ""
    rejections: dict[str, str] = field(default_factory=dict)


class RecomputeRequests:
    """Recompute requests of one reader."""

    def __init__(self, reader: str, writers: Mapping[str, Collection[str]]) -> None:
        """Start without requests. ``writers``: replicas of every stream that can be recomputed.
        Streams of other pipelines are not among them: requests do not cross pipelines.
        """
        self._reader, self._writers = (
            reader,
            {stream: frozenset(those) for stream, those in writers.items()},
        )
        self._requests: dict[str, _Request] = {}
        self._number = 0

    def lacking(
        self, stream: str, first: int, last: int, monotonic_ms: int, *, wall_ms: int
    ) -> Ask | None:
        """Return the request to send now for the missing blocks of ``first..last`` of ``stream``;
        None if there is none to send (RQ1, RQ2). ``wall_ms`` dates the request, and makes its
        number higher than those of an earlier process.
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
            and monotonic_ms - found.since_ms < _PATIENCE_MS[found.state]
        ):
            return None
        self._number = max(self._number + 1, wall_ms)
        ask = Ask(stream, self._reader, self._number, first, last, wall_ms)
        self._requests[stream] = _Request(ask, RequestState.SENT, monotonic_ms)
        return ask

    def there(self, stream: str) -> None:
        """Drop the request for ``stream``, because no block that is needed is missing."""
        self._requests.pop(stream, None)

    def receive(self, answer: AskReply, monotonic_ms: int) -> None:
        """Apply a reply from the control topic."""
        found = self._requests.get(answer.stream)
        if found is None or answer.reader != self._reader or answer.number != found.ask.number:
            return
        if answer.replica not in self._writers[answer.stream]:
            return
        found.state, found.since_ms = _HEARD[answer.outcome], monotonic_ms
        if found.state is RequestState.TAKEN:
            found.taken_by = answer.replica
        if found.state is RequestState.SENT:
            found.rejections[answer.replica] = answer.reason
            if found.rejections.keys() == self._writers[answer.stream]:
                found.state = RequestState.REJECTED

    def state(self, stream: str) -> RequestState | None:
        """Return the state of the request for ``stream``; None if there is none."""
        found = self._requests.get(stream)
        return None if found is None else found.state

    def describe(self, stream: str) -> str:
        """Return a description for people of the request for ``stream`` and its outcome."""
        found = self._requests.get(stream)
        if found is None:
            return (
                f"no replica can recompute {stream}: it is another pipeline's"
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
    """Requests received by one replica of a stage. ``now_ms`` is monotonic."""

    def __init__(self, stream: str, replica: str, replicas: Sequence[str]) -> None:
        """Start without requests. ``replicas``: all replicas of the stage, in the order of their
        turns.
        """
        self._stream = stream
        self._replica = replica
        self._turn_ms = list(replicas).index(replica) * ASK_TURN_MS
        self._peers = frozenset(replicas) - {replica}
        self._waiting: dict[str, tuple[Ask, int]] = {}
        self._working: Ask | None = None
        self._repeated_ms = 0
        """Time when this replica last said that it works on the request (RQ8)."""
        self._peer_until_ms: dict[str, int] = {}
        """Peers that work on a request, each with the time until which that counts (RQ5)."""

    def receive(self, entry: Ask | AskReply, now_ms: int) -> None:
        """Apply a record from the control topic."""
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
        """Return the request to take now, if any. The caller says that it is taken, and calls
        ``done`` when it is answered.
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
        """Return the request that this replica works on, if it is time to repeat that it is taken
        (RQ8).
        """
        if self._working is None or now_ms - self._repeated_ms < ASK_TAKEN_EVERY_MS:
            return None
        self._repeated_ms = now_ms
        return self._working

    def done(self) -> None:
        """End the work on the request, which has been answered."""
        self._working = None


class Recomputation:
    """One query that recomputes buckets."""

    def __init__(
        self,
        wanted: Iterable[TakenBucket],
        log_states: Mapping[str, LogState],
        traits: PlanTraits,
        *,
        rows_max: int = BATCH_ROWS_MAX,
    ) -> None:
        """Prepare the query. ``wanted``: stable buckets as the boundary log has them, ascending, at
        least one. ``log_states``: the inputs, with nothing forgotten.
        """
        self._wanted = {bucket: parts for bucket, _, parts in wanted}
        self._log_states = log_states
        self._traits = traits
        self._rows_max = first_rows_max(rows_max, traits)
        self._made: dict[int, list[Part]] = {}
        self.first, self.last = min(self._wanted), max(self._wanted)
        self._closed = 0

    @property
    def begins_after(self) -> int:
        """Bucket after which a query without a checkpoint begins (RC2)."""
        return 0 if self._traits.is_stateful else self.first - 1

    @property
    def is_finished(self) -> bool:
        """Whether every wanted bucket is closed (RC3)."""
        return self._closed >= self.last

    @property
    def wanted(self) -> frozenset[int]:
        """Buckets whose rows are kept."""
        return frozenset(self._wanted)

    def beginning(
        self, name: str, base_of: Callable[[BatchId], int | None]
    ) -> Generator[Step, Answer, str]:
        """Make the directory ``name``, in which the query begins (RC6). Return why it cannot begin,
        in words; empty if it can.

        ``base_of``: as for a peer's checkpoint, of the replica's own.
        """
        newest = (yield FindNewest()) if self._traits.is_stateful else None
        if isinstance(newest, Timeline):
            yield Copy(newest.name, name)
            for batch in batches_of((yield FindBatches(name))):
                tip = newest.tip(batch) if batch >= max(0, newest.lowest) else None
                base = None if tip is None else base_of(tip)
                if base is None or base >= self.first or (yield FindWhole(name, (batch,))) is None:
                    continue
                missing = yield FindMissing(name, batch)
                if not missing:
                    yield CutBack(name, batch, keep_plan=False)
                return str(missing)
        missing = yield FindMissing(name, -1)
        if not missing:
            yield Create(name)
        return str(missing)

    def lacks(self, after: int, gone: Callable[[str, Iterable[TakenBucket]], int | None]) -> str:
        """Return which input after bucket ``after`` up to the end of the range is missing, in
        words; empty if none is.

        ``gone``: (input, buckets of it) -> the first of which blocks are deleted, if any is.
        """
        for stream, log_state in self._log_states.items():
            if log_state.upto < self.last:
                return f"{stream} is not known up to bucket {self.last}"
            if after < log_state.forgotten:
                return (
                    f"no checkpoint is older than the range, and the log of {stream} describes its"
                    f" buckets up to {log_state.forgotten} no more"
                )
            bucket = gone(stream, log_state.stable(after + 1, self.last))
            if bucket is not None:
                return (
                    f"no checkpoint is older than the range, and the blocks of {stream} from bucket"
                    f" {bucket} on are deleted"
                )
        return ""

    def plan(self, position: QueryPosition) -> Plan | None:
        """Return the next plan of the query at ``position``; None if it has finished."""
        if position.bucket >= self.last:
            return None
        begin = replace(position, bucket=max(position.bucket, self.begins_after))
        plan = next_plan(
            begin, self._log_states, self._traits, rows_max=self._rows_max, last=self.last
        )
        return None if plan is None else replace(plan, before=position)

    def made(self, parts: Iterable[Part], closed: int) -> None:
        """Add the ``parts`` of a batch that closed everything up to ``closed``."""
        for part in parts:
            if part.bucket in self._wanted:
                self._made.setdefault(part.bucket, []).append(part)
        self._closed = max(self._closed, closed)

    def different(self) -> int | None:
        """Return the first bucket that differs from the boundary log (RC4); None if all are the
        same.

        Raises:
            LocalProtocolError: the query has not closed all of them yet (RC3).
        """
        if not self.is_finished:
            message = (
                f"the query has closed its buckets up to {self._closed}, and {self.last} is wanted"
            )
            raise LocalProtocolError(message)
        return next(
            (
                bucket
                for bucket, was in self._wanted.items()
                if contents(self._made.get(bucket, ())) != contents(was)
            ),
            None,
        )

    def without_skipping(self) -> Recomputation | None:
        """Return the query to run instead of this one, which yielded other rows (RC2); None if
        there is none.
        """
        if not self._traits.is_stateful and self.different() is not None:
            return Recomputation(
                ((bucket, "", parts) for bucket, parts in self._wanted.items()),
                self._log_states,
                replace(self._traits, is_stateful=True),
                rows_max=self._rows_max,
            )
        return None

    def parts(self) -> tuple[Part, ...]:
        """Return the parts of all buckets.

        Raises:
            LocalProtocolError: the parts may not be used (RC3, RC4).
        """
        if self.different() is not None:
            message = f"bucket {self.different()} was recomputed with other rows"
            raise LocalProtocolError(message)
        return tuple(part for bucket in self._wanted for part in self._made[bucket])


def split_retained(
    log_state: LogState,
    replica: str,
    wanted: Iterable[TakenBucket],
    is_gone: Callable[[str, Iterable[Part]], bool],
) -> tuple[tuple[Part, ...], list[TakenBucket]]:
    """Split the ``wanted`` buckets: return the parts of the equal version of ``replica`` itself
    that still has its blocks, and the buckets without one (RC7).

    Args:
        log_state: State of the replica's stream.
        replica: Replica that serves the request.
        wanted: Buckets whose blocks are gone, in the form of ``LogState.stable``.
        is_gone: Function from a writer and parts to whether any of their blocks is gone.
    """
    parts: list[Part] = []
    rest: list[TakenBucket] = []
    for bucket, writer, theirs in wanted:
        own = dict(log_state.alike(bucket, writer, theirs)).get(replica)
        if own is None or is_gone(replica, own):
            rest.append((bucket, writer, theirs))
        else:
            parts += own
    return tuple(parts), rest


def recomputed_records(replica: str, epoch: int, parts: Iterable[Part]) -> Iterator[Recomputed]:
    """Yield ``parts``, which are of whole buckets, as records (RC5)."""
    by_bucket: dict[int, list[Part]] = {}
    for part in parts:
        by_bucket.setdefault(part.bucket, []).append(part)
    chunk: list[Part] = []
    for _, of_bucket in sorted(by_bucket.items()):
        if chunk and len(chunk) + len(of_bucket) > PARTS_PER_RECORD_MAX:
            yield Recomputed(replica, epoch, tuple(chunk))
            chunk = []
        chunk += of_bucket
    if chunk:
        yield Recomputed(replica, epoch, tuple(chunk))
