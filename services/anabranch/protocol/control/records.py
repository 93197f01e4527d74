"""The records of the control, alarm and progress topics, as values, the states of a replica that
heartbeats name, and which process may say what.

Theory of operation. ``codec.control_records`` turns the records into bytes and back. Each process
has a control topic that the broker lets only this process write, and the manager has two more. So
the topic of a record tells its writer; what the record says of its writer proves nothing. A reader
takes one only from the topic of a process that may say it (``Speaker``), and counts the others.

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
    SK5 what names a life of a stream (``streams.stream_life``) counts in that life alone: where the
        topic of its boundary log was made anew, epochs and buckets begin again, and what a control
        topic still holds of before says nothing of them.
    SK6 a report of a node counts only from the topic of this node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


class ReplicaState(StrEnum):
    """State of a replica, and so of its stream (DPC's node states), as the replica reports it and
    as other processes judge it. The values are those in heartbeats.

    Other processes also count a replica as in FAILURE while they receive no heartbeats of it, or
    only ones that say that it is starting.
    """

    STABLE = "stable"
    """State of a replica that has caught up with its input and closes buckets in time: its results
    are stable.
    """
    UP_FAILURE = "up_failure"
    """State of a replica that lacks input: its branch computes tentative buckets."""
    STABILIZATION = "stabilization"
    """State of a replica whose missing input is back: its successor makes the corrections."""
    FAILURE = "failure"
    """State of a replica without results in time: it has not caught up since it began, was paused
    or fell behind, or it waits without a branch.
    """

    @classmethod
    def parse(cls, text: str) -> ReplicaState:
        """Return the state that a heartbeat names; a starting replica (empty text), or an unknown
        word, is FAILURE to others.
        """
        try:
            return cls(text)
        except ValueError:
            return cls.FAILURE


INPUT_REFUSED: Final = "input_refused"
"""State in the heartbeats of a replica with an input that another owner writes and that contradicts
the pipeline file (``protocol.log.boundary_log``, BL22).
"""
INPUT_MISSING: Final = "input_missing"
"""State in the heartbeats of a source whose input is gone (``protocol.edge.missing_input``)."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sign of life of a service process, with its state. Its contents decide only about load and
    the choice of an upstream replica, never about a row.
    """

    service: str
    name: str
    """Name of the source, stage or output."""
    replica: str
    epoch: int
    """-1: it has none."""
    state: str
    """Status of the service, for people; ``ended`` is its last one (``protocol.stage.standby``)."""
    bucket: int
    """Last bucket that it closed as stable, or delivered."""
    written_ms: int
    replica_state: str = ""
    """``ReplicaState`` of the process, if it writes a stream; empty if it has none yet, or writes
    none.
    """
    branch: int | None = None
    """Number of the branch that runs (its counter, rule 16); None: none."""
    checkpoint: str = ""
    """Timeline whose directory the process would start from again (rule 8)."""
    checkpoint_bucket: int = 0
    """Last bucket of its inputs that this directory, or what stands in the output, holds for
    good: it never reads it again (rule 18).
    """
    corrects: bool = False
    """Whether the replica makes corrections at full speed (``protocol.stage.scheduling``)."""
    rejected: int = 0
    """Number of results that a delivery process could not deliver since it began, for their size;
    number of rows that were too large for the stream of a stage's replica, in stable batches.
    """
    life: str = ""
    """Life of the stream that it writes, or delivers, in which epoch and buckets mean something
    (SK5); empty: of none.
    """
    fetched_bytes: int = 0
    """Bytes that a process that stands by has read from the store of checkpoints since it began."""
    stored: str = ""
    """SHA-256 of the manifest of the last checkpoint that it has stored for other participants'
    nodes (``protocol.stage.owners_checkpoint``); empty: none.
    """
    room_left_ms: int | None = None
    """Time until a stage's replica that leaves out rows cannot hold more of its input, in ms; None:
    its backlog does not grow, or it leaves out none.
    """


@dataclass(frozen=True, slots=True)
class Vote:
    """Contents of a bucket by one replica, as its boundary records say."""

    replica: str
    epoch: int
    """Epoch of the process that closed the bucket."""
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Fence:
    """A process of a replica must end: a majority of its peers made something else."""

    stage: str
    replica: str
    epoch: int
    bucket: int
    votes: tuple[Vote, ...]
    """Votes of all replicas about the bucket: readers of a fence count them
    (``protocol.control.fencing``).
    """
    written_ms: int
    life: str = ""
    """Life of the stage's stream in which the epochs were begun (SK5)."""

    @property
    def reason(self) -> str:
        """Return the reason in words."""
        return (
            f"a majority of the replicas of {self.stage} made other rows of bucket {self.bucket}"
            f" than replica {self.replica}, by the same plan"
        )


@dataclass(frozen=True, slots=True)
class TrimPoint:
    """No reader of a stream needs buckets up to ``bucket`` any more (rule 18)."""

    stream: str
    bucket: int
    written_ms: int
    life: str = ""
    """Life of the stream (SK5)."""


@dataclass(frozen=True, slots=True)
class DeliveryProgress:
    """Progress of an output's delivery: one transaction, visible to read_committed readers together
    with its records.

    Written are the rows from (``first_bucket``, ``first_position``) up to, not including,
    (``last_bucket`` + 1, ``next_position``).
    """

    output: str
    first_bucket: int
    last_bucket: int
    """Written whole; one less than ``first_bucket`` where a large bucket is written in
    several transactions.
    """
    positions: tuple[tuple[int, int], ...]
    """(partition, offset) for every partition of the output topic: records from the run's first row
    on are at that offset or later. -1 if another shard of the output writes the partition.
    """
    written_ms: int
    first_position: int = 0
    next_position: int = 0
    heirs: int = 0
    """The output has so many other shards now, and this one writes nothing more
    (``protocol.edge.output_handover``). 0: it continues.
    """
    inherited: tuple[tuple[int, int], ...] = ()
    """(partition, offset) in the topic of rejected results: records of shards of an earlier number,
    which are still compared, are at that offset or later. Empty once they are passed.
    """
    life: str = ""
    """Life of the output's stream in which this was recorded (``protocol.edge.origins``): what it
    says is true of records of that origin alone.
    """


@dataclass(frozen=True, slots=True)
class Alarm:
    """Finding that a person should look at."""

    kind: str
    stream: str
    bucket: int
    """-1: none in particular."""
    text: str
    written_ms: int


class AskOutcome(StrEnum):
    """Answer of a replica to a recomputation request."""

    TAKEN = "taken"
    """The replica works on the request; the others need not."""
    RECOMPUTED = "recomputed"
    """The missing buckets of the range are named in the boundary log by a ``Recomputed``."""
    UNABLE = "unable"
    """The replica cannot compute the range again."""
    DIFFERENT = "different"
    """The replica computed the range again, with other rows than the boundary log says: nothing of
    it may be used.
    """


@dataclass(frozen=True, slots=True)
class Ask:
    """A reader of a stream needs blocks of buckets that are deleted
    (``protocol.stage.recomputation``).
    """

    stream: str
    reader: str
    """Reader that asks: service, name and replica."""
    number: int
    """Grows with every request of the reader, over its restarts too."""
    bucket_first: int
    bucket_last: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class AskReply:
    """Answer of a replica of the stream to the request ``number`` of ``reader``."""

    stream: str
    replica: str
    reader: str
    number: int
    outcome: AskOutcome
    reason: str
    """Reason for people: why the replica is unable, or what differs."""
    written_ms: int


@dataclass(frozen=True, slots=True)
class Move:
    """Decision that a replica runs on another node: of an operator, an agent or the scaler; or of
    the node that runs it, which withdraws a move (``protocol.control.placement``).
    """

    stage: str
    replica: str
    node: str
    """Node that is to run the replica; empty: none."""
    written_ms: int
    withdrawn: str = ""
    """Reason, for people, for which the move before is withdrawn; empty: it is not."""
    only_from: str = ""
    """Node that must still have the place of the replica, otherwise the record has no effect;
    empty: any (``protocol.control.placement``, PC7).
    """
    cause: str = ""
    """Cause for which the scaler moves it (``protocol.control.scaling.Cause``); empty: an operator,
    an agent or a node decided.
    """
    because: str = ""
    """Decision of the scaler with its figures, for people."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Load of one replica on a node, over the time since the node's previous report."""

    stage: str
    replica: str
    state: str
    """State of the replica on this node, as ``status`` shows it."""
    leads: bool
    """Whether it has begun an epoch here and its query has run its first batch."""
    stands_by: bool
    """Whether it is a process of a passive stage that is ready to become the primary here."""
    busy_permille: int
    """Share of the time in which a batch ran."""
    rows_per_s: int
    """Rows that its batches read, per second."""
    behind: int
    """Number of buckets that are complete on all its inputs and that it has not closed."""
    is_cold: bool = False
    """Whether one of its first batches ran, which take longer than later ones
    (``protocol.stage.busy_time``).
    """
    need_permille: int = 0
    """Share of the time that its batches would fill if it neither fell behind nor caught up
    (``protocol.stage.busy_time``); 0: it was not measured.
    """

    @property
    def label(self) -> str:
        """Label ``STAGE.REPLICA``."""
        return f"{self.stage}.{self.replica}"

    @property
    def is_here(self) -> bool:
        """Whether the replica runs on the node that reports it. For a passive stage any process
        that is ready counts: the processes decide among themselves which is the primary.
        """
        return self.leads or self.stands_by


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Sign of life of a node, with the state of its replicas. Written by the nodes of a pipeline
    that is scaled (``protocol.control.scaling``); it decides about places only, never about a row.
    """

    node: str
    written_ms: int
    cores: int
    """Number of tasks that its engine runs at once."""
    replicas: tuple[ReplicaLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class Restated:
    """Decision of an operator that a stage begins anew with another function
    (``protocol.stage.restating``).
    """

    stage: str
    version: int
    """Version of the stage that begins anew."""
    after: int
    """Bucket after which it takes its input."""
    written_ms: int


class Step(StrEnum):
    """Step of an attempt to split a shard, as the log of moves states it."""

    WANTED = "wanted"
    CONFIRMED = "confirmed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class SplitStep:
    """Record in the log of moves about the split of one shard (``protocol.stage.splitting``)."""

    shard: str
    step: Step
    written_ms: int
    attempt: int = -1
    """Number of the attempt that the record answers; in a record by which a scaler wants a split,
    the newest attempt that it knows. -1: none.
    """
    reason: str = ""
    """Reason for people: why the attempt is withdrawn; why a scaler wants the split, with its
    figures. Empty if an operator wants it.
    """
    bucket: int = -1
    """First bucket in which the rows of both halves differ from the shard's; -1: none."""

    @property
    def is_scalers_wish(self) -> bool:
        """Whether a scaler wants the split. An operator who wants one gives no reason."""
        return self.step is Step.WANTED and bool(self.reason)


ControlRecord = (
    Heartbeat
    | Fence
    | TrimPoint
    | DeliveryProgress
    | Alarm
    | Ask
    | AskReply
    | Move
    | Restated
    | NodeReport
    | SplitStep
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Process that writes one control topic."""

    beats: frozenset[tuple[str, str, str]]
    """Pairs (service, name, replica) that it may write heartbeats for."""
    reader: str = ""
    """Name under which the process sends recomputation requests; empty if it sends none."""
    answers: frozenset[tuple[str, str]] = frozenset()
    """Pairs (stream, replica) that it may answer requests for."""
    trims: bool = False
    """Whether it is the manager, which writes trim points."""
    fences: bool = False
    """Whether it is the manager, which writes fences."""
    reports: str = ""
    """Node whose reports it may write (SK6); empty: it may write none."""
    known_as: str = ""
    """Local name of the stream of another pipeline that its heartbeats are about; empty: they are
    about one of this pipeline.
    """
    logs: Mapping[str, str] = field(default_factory=dict)
    """Topic of the boundary log of each source, stage or output whose life its records name
    (SK5).
    """

    @property
    def is_manager(self) -> bool:
        """Whether the manager writes the topic."""
        return self.trims or self.fences

    def log_of(self, entry: ControlRecord) -> str:
        """Return the topic of the boundary log whose life ``entry`` names; empty: it names none."""
        match entry:
            case Heartbeat(name=name, life=life) if life:
                return self.logs.get(name, "")
            case Fence(stage=name, life=life) if life:
                return self.logs.get(name, "")
            case TrimPoint(stream=name, life=life) if life:
                return self.logs.get(name, "")
        return ""

    def accept(self, entry: ControlRecord) -> ControlRecord | None:
        """Return ``entry``, read from its topic, in the form that counts here; None if it does not
        count.
        """
        if not self.may_say(entry):
            return None
        if self.known_as and isinstance(entry, Heartbeat):
            return replace(entry, name=self.known_as)
        return entry

    def may_say(self, entry: ControlRecord) -> bool:
        """Return whether ``entry`` counts if it is read from its topic."""
        if isinstance(entry, Heartbeat):
            return (entry.service, entry.name, entry.replica) in self.beats
        if isinstance(entry, Ask):
            return bool(self.reader) and entry.reader == self.reader
        if isinstance(entry, AskReply):
            return (entry.stream, entry.replica) in self.answers
        if isinstance(entry, NodeReport):
            return bool(self.reports) and entry.node == self.reports
        if isinstance(entry, Fence):
            return self.fences
        return self.trims and isinstance(entry, TrimPoint)
