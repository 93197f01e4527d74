"""Scaling of a pipeline: which replica moves to which node of the pool because its node is
overloaded, or lost, when it moves back, and which shard is split because no move can help it.

Theory of operation. Overload is a failure like any other, and a lost node is an overload without
end: both are answered by one operation, a move of a replica to a node of the *pool*. The pool are
nodes that run and have no replicas of their own (the pool of virtual machines of SEEP, SIGMOD
2013). A move that relieves a node is the *slide* of Aurora*, a move away from a lost node is SEEP's
recovery as scale-out with one. The move itself is that of an operator: a record in the log of moves
(``protocol.control.placement``). The replica begins there from its newest checkpoint that is within
reach (``protocol.stage.standby``, ``protocol.stage.transfer``), and until then runs where it ran,
if it does.

Each node reports once a second: its cores and, for each of its replicas, the share of the time in
which a batch ran, the rows that it read, how many complete buckets it is behind, and what its
batches *need*: the share of the time that they would fill if the lag stayed as it is
(``protocol.stage.busy_time``). As in SEEP a threshold must be exceeded in consecutive reports
before anything is done. A replica is overloaded if its batches fill more than ``above`` of the time
in each report of the window, and the median need is as high. So a backlog is no overload while it
becomes less fast enough, even if the batch that works it off takes longer than the window: the lag
falls only at its end. A replica is overloaded, too, if it falls behind in both halves of the
window. (A lag that comes at once is the backlog of a failure that has ended, and a lag of a second
is the pace of batches.) But a lag may grow although batches can do more than a second of input per
second: while the stream that the replica reads catches up itself, and while corrections wait until
the load is measured. So it does not count while the need is below the busy share.

The first batches of a process, the *cold* ones (``protocol.stage.busy_time``), are slow whatever
its load, and take the cores from its neighbours: while they run, what a node reports is not judged.

The load of a node is the sum of the busy shares of its replicas per core. Of all moves of one
replica away from the node of an overloaded one, that one is chosen after which the more loaded of
both nodes has the least load. If no move makes that less by ``RELIEF_MIN_PERMILLE``, nothing is
moved: a replica that has its node for itself is not helped by another node of the same size. What
helps then is to divide its work: its shard is *split* if the pipeline file names halves of it
(``protocol.control.halving``). Each half is expected to take half of what the shard takes, and goes
to the node that has the least load per core once the shard has ended; of equal ones to that which
has the least until then, while the shard does its work beside them. So a half stays beside the
shard only where the pool has no better node. What no split helps either is named in ``notes``.

With ``parallel: 2`` a shard is split when its node is lost, too, in the action that moves its
replica: this is SEEP's parallel recovery. The halves compute the state from the input, on two nodes
of the pool, and the replica restores it from its newest checkpoint meanwhile. Results come again
with whichever is first (``protocol.stage.splitting``).

A node is lost when nothing was received from it for ``NODE_LOST_MS``, counted and judged as
``Silence`` does: while the broker is away, or this process was paused, no node is lost. A node that
has sent nothing since this process began is given ``NODE_START_MS``, as it may be starting.

A replica goes back to the node that the pipeline file names when its own share, and the load of
that node together with it, are less than half of ``above``; so what moved away for load does not go
back into the same load. The time for which this must hold, like the time between two moves of one
replica for its load, doubles with each move that a scaler has made of it.

The log of moves is the whole memory. A process that decides has no other state than the reports
since it began. After a restart it counts all times anew, which delays decisions and changes nothing
else. Two processes may decide at once, for example a manager and its replacement. Each record names
the node that has the place (PC7), so of two decisions about one replica the first in the log
counts, and the other has no effect, whenever it arrives.

What is done about a replica is the table ``DUTIES``, from the state of the node that has its place
and from where it runs. A half that does not run has no duty. Replicas of a shard that was split are
neither judged nor awaited; but one whose node is lost is recovered, since a process of the shard
has to end its stream.

Invariants:
    SG1 a replica is moved for its load only after the window ``for`` of consecutive reports all of
        which say that a replica of its node is overloaded; reports further apart than
        ``REPORT_GAP_MS``, and one between them without the replica, begin a new window.
    SG2 while a move of any replica is under way - the node of its place has not reported yet that
        it runs there - nothing is moved for load; nor within ``rest`` after that, or after the
        start of this process.
    SG3 one slide, split or return is decided at a time. What is moved from a lost node is moved in
        one action, and waits for nothing.
    SG4 two moves of one replica for its load are at least ``rest`` apart, doubled with each move
        that a scaler has made of it, up to ``DOUBLINGS_MAX`` times.
    SG5 a replica goes back only where the pipeline file places it, and only if a scaler has moved
        it last: what an operator has moved is not moved back. A move that was withdrawn or taken
        back does not count: the replica stays where the move before it had brought it.
        One that has not begun on its new node within ``BEGIN_MS_MAX``, and runs nowhere, goes back
        as soon as that node sends a heartbeat.
    SG6 every move goes to a node that has sent a report within ``REPORT_GAP_MS``, may run the
        replica (PC1 to PC3), and is of the pool or the one that the file names; only a move that is
        taken back goes to the node that runs the replica. If there is none the replica stays.
    SG7 only a node that is silent by the rules of ``Silence`` is lost.
    SG8 a replica of which a move was withdrawn is not moved away for load for ``AVOIDED_MS``.
    SG9 between a decision and its record in the log, or ``CONFIRM_MS``, nothing else is decided.
    SG10 a process of a passive stage is not moved for load: another one stands by for it, and the
        move of the primary would be a failover.
    SG11 a shard is split for its load only after the window of SG1, while its replica has the node
        for itself, HG2 and HG3 allow it, and every replica of its halves has a node that sends
        reports; the moves of halves precede the record that wants the split, so each begins where
        it belongs.
    SG12 what does not run is not moved: a half before its split is wanted and after it was
        withdrawn. A shard and its halves are neither moved for load nor split while they are
        compared, and the windows of the halves begin when they take over.
    SG13 a report of a node on which a cold batch ran begins a new window for each of its replicas:
        what waits then is no measure of a load, and neither is how long the batch takes.
    SG14 no replica counts as overloaded because its batches fill the time while the median need is
        below ``above``, nor because of its lag while the last need is below its busy share and
        below NEED_HIGH_PERMILLE.
    SG15 a shard is split for the loss of its node only where ``parallel`` says so, none of its
        replicas runs, HG2 and HG3 allow it, and two nodes that send reports can take its halves;
        of several such shards the busiest is. Its replica moves as without the split. A shard that
        is compared, or was split, only moves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, StrEnum, auto
from statistics import fmean, median_low
from typing import Final

from anabranch.protocol.control.failure_detector import Silence
from anabranch.protocol.control.halving import Room, Shards
from anabranch.protocol.control.placement import Places
from anabranch.protocol.control.records import Move, NodeReport, ReplicaLoad, SplitStep, Step
from anabranch.protocol.control.scaling_history import SPLIT_CAUSE, ScalingHistory, leading
from anabranch.protocol.limits import LONG_SILENT_MS

REPORT_EVERY_MS: Final = 1_000
"""Interval between two reports of a node, in ms."""

REPORT_GAP_MS: Final = 3_500
"""Maximum age, in ms, of a report that counts as the present state, and maximum time between two
reports of one window: three reports may be lost.
"""

NODE_LOST_MS: Final = LONG_SILENT_MS
"""Silence of a node, in ms, after which its replicas are moved. The process that stands by on the
new node waits as long for the old one: a wrong move costs a restart, never a result.
"""

NODE_START_MS: Final = 120_000
"""Timeout for the first report of a node, in ms, after which its replicas are moved: a node whose
machine is busy may need a minute or two to start.
"""

RELIEF_MIN_PERMILLE: Final = 50
"""Least relief that is worth a move, in permille of a node's load per core. A move costs the
batches of some seconds.
"""

LAG_CHANGE_MS: Final = 1_500
"""Least growth of a replica's lag over the window, in ms of event time, that counts as falling
behind: less is the spacing of its batches (APART_MOST_MS of
``protocol.stage.scheduling``), and what delays them. The bucket that is being processed comes on
top.
"""

LAG_HALF_PARTS: Final = 4
"""Least part of the growth of a lag over the window, as a divisor, that each half of the window has
if a replica falls behind: at a load that grows evenly from nothing the first half has a quarter.
"""

NEED_NOISE: Final = 1.1
"""Factor between the busy share and a need that counts as more than it: the need is that of single
batches, the busy share that of the window.
"""

NEED_HIGH_PERMILLE: Final = 900
"""Need, in permille, from which a lag that grows counts as falling behind whatever the busy share:
from it on a branch leaves no time in which corrections could catch up (RESUMED of
``protocol.stage.load_control``).
"""

DOUBLINGS_MAX: Final = 6
"""Maximum number of times that the time between two moves of a replica doubles: with a rest of 30 s
it is half an hour then.
"""

AVOIDED_MS: Final = 600_000
"""Time, in ms, for which a replica is not moved for its load after a move of it was withdrawn: what
made it stall, such as a store that is away, lasts.
"""

CONFIRM_MS: Final = 5_000
"""Time, in ms, for which a decision waits for its record in the log of moves. After that it is not
known to be written, and the situation is judged anew.
"""

BEGIN_MS_MAX: Final = 60_000
"""Time, in ms, that a replica which a scaler has moved has to begin on its new node, before it goes
back to the node of the file, if that is there again: perhaps only there is a checkpoint of it.
"""


class Cause(StrEnum):
    """Cause of a move that a scaler has decided, as its record names it."""

    OVERLOAD = "overload"
    SPLIT = SPLIT_CAUSE
    """Cause of the split of a shard: it is overloaded, and no move helps."""
    HALF = "half"
    """Cause of the move of a half, before its shard is split."""
    LOST = "lost"
    BACK = "back"
    TARGET_LOST = "target_lost"
    """Cause of a move back: the node to which the replica was moved is lost, and the replica still
    runs where it ran.
    """


class NodeState(Enum):
    """State of a node, as one process sees it."""

    ALIVE = auto()
    LOST = auto()
    UNKNOWN = auto()
    """State of a node without a report yet, or without one for less than the limit; of all nodes
    while none can be judged (SL5).
    """


class Runs(Enum):
    """Place where a replica runs, by the newest reports of nodes that are not lost."""

    HERE = auto()
    """The replica runs on the node that has its place."""
    ELSEWHERE = auto()
    NOWHERE = auto()


class Duty(Enum):
    """Duty of a scaler about one replica."""

    JUDGE = auto()
    """Compare its load with the thresholds."""
    WAIT = auto()
    """Its move, its start or a node's silence is under way."""
    RECOVER = auto()
    """Move it to a node of the pool."""
    TAKE_BACK = auto()
    """Move it to the node where it runs."""


DUTIES: Final[Mapping[tuple[NodeState, Runs], Duty]] = {
    # the node that has the place, where the replica runs
    (NodeState.ALIVE, Runs.HERE): Duty.JUDGE,
    (NodeState.ALIVE, Runs.ELSEWHERE): Duty.WAIT,
    (NodeState.ALIVE, Runs.NOWHERE): Duty.WAIT,
    (NodeState.UNKNOWN, Runs.HERE): Duty.WAIT,
    (NodeState.UNKNOWN, Runs.ELSEWHERE): Duty.WAIT,
    (NodeState.UNKNOWN, Runs.NOWHERE): Duty.WAIT,
    (NodeState.LOST, Runs.ELSEWHERE): Duty.TAKE_BACK,
    (NodeState.LOST, Runs.NOWHERE): Duty.RECOVER,
}
"""A lost node reports nothing, so nothing runs there."""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Thresholds and times of scaling."""

    pool: tuple[str, ...]
    """Nodes of the pool, in the order of the file."""
    above_permille: int
    """Share of the time that batches may fill."""
    for_ms: int
    """Window over which a replica must be overloaded, in ms."""
    rest_ms: int
    """Shortest time between two moves for load, in ms."""
    bucket_ms: int
    """Width of a bucket, in ms."""
    passive: frozenset[str] = frozenset()
    """Replicas that are processes of a passive stage."""
    halves: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Halves of each shard that may be split."""
    is_parallel: bool = False
    """Whether a shard whose node is lost is split, too (SG15)."""


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """One decision that is to be written to the log of moves: a move of the replica ``label``."""

    label: str
    source: str
    """Node that has the place now."""
    target: str
    cause: Cause
    because: str
    """Reason with its figures, for people."""

    @property
    def in_words(self) -> str:
        """Text of the decision for people, as an order."""
        return f"move {self.label} from {self.source} to {self.target} ({self.cause})"

    def record(self, written_ms: int) -> Move | SplitStep:
        """Return the record of the decision."""
        stage, _, replica = self.label.rpartition(".")
        return Move(
            stage,
            replica,
            self.target,
            written_ms,
            only_from=self.source,
            cause=self.cause.value,
            because=self.because,
        )


@dataclass(frozen=True, slots=True)
class Halving(ScalingDecision):
    """Split of the shard ``label``, which runs on ``source``. ``target`` names the node of each
    half, for people.
    """

    wanted: SplitStep

    @property
    def in_words(self) -> str:
        """Text of the decision for people, as an order."""
        return f"split {self.label} on {self.source} into {self.target}"

    def record(self, written_ms: int) -> SplitStep:
        """Return the record that wants the split."""
        return replace(self.wanted, written_ms=written_ms)


@dataclass(slots=True)
class _Node:
    """Newest report of one node, and its silence."""

    report: NodeReport | None = None
    heard_ms: int = 0
    silence: Silence = field(default_factory=Silence)


@dataclass(slots=True)
class _Track:
    """Newest loads of one replica where it runs."""

    node: str
    seen: deque[tuple[int, ReplicaLoad]]
    """Reports with their times; there is always one."""
    low_since_ms: int | None = None
    """Time since which it could go back without a break; None: it could not."""

    @property
    def need_permille(self) -> int:
        """Median need of the window's reports, which one slow batch does not move; 0: it was not
        measured.
        """
        needs = [load.need_permille for _, load in self.seen if load.need_permille]
        return median_low(needs) if needs else 0


class Scaler:
    """Decisions about the places of a pipeline's replicas. ``now_ms`` is monotonic, one clock's."""

    def __init__(self, rules: ScalingRules, places: Places, file_places: Places) -> None:
        """Begin without reports.

        Args:
            rules: Thresholds and times.
            places: Places by the log of moves. The caller applies each record to them, and then
                calls ``moved``.
            file_places: Places that the pipeline file states.
        """
        self._rules, self._places = rules, places
        self._home = {label: file_places.node_of(label) for label in file_places.labels()}
        self._shards = Shards(rules.halves)
        self._nodes = {node: _Node() for node in places.nodes() if not places.is_partners(node)}
        self._tracks: dict[str, _Track] = {}
        self._decided: dict[str, int] = {}
        """Number of moves of each replica that scalers have made."""
        self._causes: dict[str, tuple[str, str]] = {}
        """Causes of the last two moves of each replica, without those that came to nothing: of the
        one before, and of the last (SG5).
        """
        self._begun: set[str] = set()
        """Replicas that the node of their place has reported to run since their last move (SG2)."""
        self._moved_ms: dict[str, int] = {}
        self._avoided_until_ms: dict[str, int] = {}
        self._nowhere_since_ms: dict[str, int] = {}
        """Time since which each replica that is not where it belongs runs nowhere (SG5)."""
        self._rested_from_ms: int | None = None
        self._awaited: set[ScalingDecision] = set()
        """Decisions whose records are not in the log yet (SG9)."""
        self._awaited_until_ms = 0
        self.history = ScalingHistory()
        """Newest decisions of scalers, and what came of them."""
        self.notes: dict[str, str] = {}
        """Needs of replicas that no move can meet, for people, by replica."""

    # -- reports that arrive
    # ----------------------------------------------------------------------------------------------

    def came_back(self, now_ms: int) -> None:
        """Note that the broker answers: an own record was received (SL1)."""
        for each in self._nodes.values():
            each.silence.came_back(now_ms)

    def reported(self, report: NodeReport, now_ms: int) -> None:
        """Apply a report that was written since this process listens."""
        node = self._nodes.get(report.node)
        if node is None:
            return
        node.report, node.heard_ms = report, now_ms
        node.silence.broken(now_ms)
        here = {load.label for load in report.replicas if load.is_here}
        # A replica that stopped and began again has a backlog: its earlier load says nothing of it.
        self._tracks = {
            label: track
            for label, track in self._tracks.items()
            if track.node != report.node or label in here
        }
        is_cold = any(load.is_cold for load in report.replicas)
        for load in report.replicas:
            if load.is_here and load.label in self._home:
                self._observe(report.node, load, now_ms, is_cold=is_cold)

    def moved(self, move: Move, source: str, now_ms: int, *, is_new: bool) -> None:
        """Apply a record of the log of moves that counts, after ``places`` have taken it.

        Args:
            move: The record.
            source: Node that had the place before.
            now_ms: Present time.
            is_new: Whether it was written since this process listens.
        """
        label = f"{move.stage}.{move.replica}"
        is_lost = move.cause in (Cause.LOST, Cause.TARGET_LOST) and source in self._nodes
        silent_ms = max(0, self._nodes[source].silence.ms) if is_lost and is_new else None
        self.history.moved(move, source, silent_ms, now_ms if is_new else None)
        self._awaited = {
            each
            for each in self._awaited
            if isinstance(each, Halving) or (each.label, each.target) != (label, move.node)
        }
        self._moved_ms[label] = now_ms
        self._begun.discard(label)
        before, last = self._causes.get(label, ("", ""))
        if move.withdrawn or move.cause == Cause.TARGET_LOST:
            # The last move came to nothing: whose place it is decides the one before.
            self._causes[label] = before, before
        else:
            self._causes[label] = last, move.cause
        if move.withdrawn:
            if is_new:
                self._avoided_until_ms[label] = now_ms + AVOIDED_MS
        elif move.cause:
            self._decided[label] = self._decided.get(label, 0) + 1

    def stepped(self, step: SplitStep, now_ms: int, *, is_new: bool) -> None:
        """Apply a step of a split that counts, by whomever it was decided. ``is_new``: as for
        ``moved``.
        """
        shard = step.shard
        self._shards.apply(step, now_ms)
        self._awaited = {
            each for each in self._awaited if not isinstance(each, Halving) or each.label != shard
        }
        self.history.stepped(
            step, self._nodes_of(shard), self._target(shard), now_ms, is_new=is_new
        )
        if step.step is not Step.WANTED:
            self._rested_from_ms = now_ms
            # Their load so far is that of the halves' way to the shard (SG12).
            halves = self._shards.halves(shard)
            self._tracks = {
                label: track for label, track in self._tracks.items() if _stage(label) not in halves
            }

    def _nodes_of(self, stage: str) -> str:
        """Return the nodes that have the replicas of a stage, for people."""
        nodes = [self._places.node_of(label) for label in self._labels_of(stage)]
        return " and ".join(dict.fromkeys(nodes))

    def _labels_of(self, stage: str) -> list[str]:
        return [label for label in self._home if _stage(label) == stage]

    def _target(self, shard: str) -> str:
        """Return the halves of a shard with their nodes, for people."""
        return ", ".join(f"{half} on {self._nodes_of(half)}" for half in self._shards.halves(shard))

    # -- what is decided
    # ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return what is to be done now: the moves of one action, or a split after the moves of its
        halves, or nothing. The caller writes them to the log of moves at once and in this order, or
        drops them.
        """
        if self._rested_from_ms is None:
            self._rested_from_ms = now_ms
        self.history.follow(
            {node: (each.report, each.heard_ms) for node, each in self._nodes.items()},
            self._rules.bucket_ms,
            now_ms,
        )
        if self._awaited and now_ms < self._awaited_until_ms:
            return ()
        self._awaited.clear()
        duties = self._duties(now_ms)
        self.notes = {}
        actions = self._urgent(duties, now_ms) or self._not_begun(duties, now_ms)
        if not actions:
            if self._are_under_way(duties):
                self._rested_from_ms = now_ms
                return ()
            judged = [
                label
                for label, duty in duties.items()
                if duty is Duty.JUDGE and not self._shards.is_compared(_stage(label))
            ]
            self._observe_low(judged, now_ms)
            found = (
                self._slide(judged, now_ms)
                or self._halve(judged, now_ms)
                or self._back(judged, now_ms)
            )
            is_rested = now_ms - self._rested_from_ms >= self._rules.rest_ms
            actions = found if is_rested else ()
        if actions:
            self._awaited = set(actions)
            self._awaited_until_ms = now_ms + CONFIRM_MS
            self._rested_from_ms = now_ms
        return actions

    def node_state(self, node: str, now_ms: int) -> NodeState:
        """Return the state of a node (SG7)."""
        known = self._nodes.get(node)
        if known is None or not known.silence.is_known(now_ms):
            return NodeState.UNKNOWN
        limit_ms = NODE_START_MS if known.report is None else NODE_LOST_MS
        if known.silence.ms >= limit_ms:
            return NodeState.LOST
        return NodeState.UNKNOWN if known.report is None else NodeState.ALIVE

    def load_permille(self, node: str) -> int:
        """Return the sum of the busy shares of the replicas on a node, in permille of one core; 0
        if it has never sent a report.
        """
        report = self._nodes[node].report
        return sum(each.busy_permille for each in leading(report))

    def is_overloaded(self, label: str, now_ms: int) -> bool:
        """Return whether a replica is overloaded (SG1)."""
        track, rules = self._tracks.get(label), self._rules
        if track is None:
            return False
        (first_ms, first), (last_ms, last) = track.seen[0], track.seen[-1]
        if last_ms - first_ms < rules.for_ms or now_ms - last_ms > REPORT_GAP_MS:
            return False
        busy = [load.busy_permille for _, load in track.seen]
        if min(*busy, track.need_permille) >= rules.above_permille:
            return True
        if 0 < last.need_permille < min(fmean(busy) * NEED_NOISE, NEED_HIGH_PERMILLE):
            return False
        grown = last.behind - first.behind
        middle = next(load for at_ms, load in track.seen if 2 * at_ms >= first_ms + last_ms)
        least = min(middle.behind - first.behind, last.behind - middle.behind)
        return self._lag_ms(grown) >= LAG_CHANGE_MS and LAG_HALF_PARTS * least >= grown

    def _lag_ms(self, buckets: int) -> int:
        """Return the lag, in ms, of a replica that is ``buckets`` behind. The bucket that it is
        processing does not count: its width says nothing of the load.
        """
        return (buckets - 1) * self._rules.bucket_ms

    def shown(self, now_ms: int) -> dict[str, object]:
        """Return what this process sees and has decided, for people and programs."""
        return {
            "above_permille": self._rules.above_permille,
            "pool": list(self._rules.pool),
            "nodes": {node: self._shown_node(node, now_ms) for node in self._nodes},
            "notes": dict(self.notes),
            "events": [asdict(each) for each in self.history.episodes],
        }

    def _shown_node(self, node: str, now_ms: int) -> dict[str, object]:
        report = self._nodes[node].report
        return {
            "state": self.node_state(node, now_ms).name.lower(),
            "cores": None if report is None else report.cores,
            "busy_permille": self.load_permille(node),
            "is_pool": node in self._rules.pool,
            "places": [
                label for label in self._places.of_node(node) if self._shards.runs(_stage(label))
            ],
            "replicas": [
                {
                    "replica": load.label,
                    "state": load.state,
                    "busy_permille": load.busy_permille,
                    "need_permille": load.need_permille,
                    "rows_per_s": load.rows_per_s,
                    "behind_ms": load.behind * self._rules.bucket_ms,
                    "is_cold": load.is_cold,
                    "is_overloaded": load.leads and self.is_overloaded(load.label, now_ms),
                }
                for load in (() if report is None else report.replicas)
            ],
        }

    # -- the steps of these
    # ----------------------------------------------------------------------------------------------

    def _observe(self, node: str, load: ReplicaLoad, now_ms: int, *, is_cold: bool) -> None:
        """Add a load to the window of its replica, if ``node`` has its place (SG1): an old process
        may not know yet that it was replaced. ``is_cold``: a cold batch ran on the node (SG13).
        """
        if node != self._places.node_of(load.label):
            return
        track = self._tracks.get(load.label)
        is_over = track is not None and (
            track.node != node or now_ms - track.seen[-1][0] > REPORT_GAP_MS
        )
        if track is None or is_over or is_cold:
            track = self._tracks[load.label] = _Track(node, deque())
        self._begun.add(load.label)
        track.seen.append((now_ms, load))
        # One entry that is as old as the window stays: it shows how long the others hold.
        while len(track.seen) > 1 and now_ms - track.seen[1][0] >= self._rules.for_ms:
            track.seen.popleft()

    def _observe_low(self, judged: Iterable[str], now_ms: int) -> None:
        """Note since when each replica that a scaler has moved could go back."""
        for label in judged:
            track = self._tracks.get(label)
            if track is not None:
                could = self._could_go_back(label, now_ms)
                since_ms = track.low_since_ms
                track.low_since_ms = None if not could else now_ms if since_ms is None else since_ms

    def _leads(self, label: str, node: str) -> bool:
        """Return whether the last report of a node says that it runs a replica."""
        known = self._nodes.get(node)
        report = None if known is None else known.report
        return any(
            each.label == label and each.is_here
            for each in (() if report is None else report.replicas)
        )

    def _duties(self, now_ms: int) -> dict[str, Duty]:
        """Return the duty about each replica that has one (SG12)."""
        found = {
            label: self._duty(label, now_ms)
            for label in self._home
            if self._shards.runs(_stage(label))
        }
        return {
            label: duty
            for label, duty in found.items()
            if duty in (Duty.RECOVER, Duty.TAKE_BACK) or not self._shards.is_split(_stage(label))
        }

    def _duty(self, label: str, now_ms: int) -> Duty:
        place = self._places.node_of(label)
        if place not in self._nodes:
            return Duty.WAIT  # removed, or on a partner's node: an operator's, or an agent's
        state = self.node_state(place, now_ms)
        return DUTIES[state, self._runs(label, place, state, now_ms)]

    def _runs(self, label: str, place: str, state: NodeState, now_ms: int) -> Runs:
        if state is not NodeState.LOST and self._leads(label, place):
            return Runs.HERE
        others = self._running_on(label, place, now_ms)
        return Runs.ELSEWHERE if others else Runs.NOWHERE

    def _running_on(self, label: str, but: str, now_ms: int) -> list[str]:
        """Return the nodes other than ``but`` that run a replica, by their recent reports."""
        return [
            node
            for node in self._nodes
            if node != but and self._is_fresh(node, now_ms)
            if self._leads(label, node)
        ]

    def _is_fresh(self, node: str, now_ms: int) -> bool:
        """Return whether a node has sent a report recently (SG6)."""
        known = self._nodes.get(node)
        return (
            known is not None
            and known.report is not None
            and now_ms - known.heard_ms <= REPORT_GAP_MS
        )

    def _are_under_way(self, duties: Mapping[str, Duty]) -> bool:
        """Return whether moves of replicas, or the begins of halves, have not come to their ends
        (SG2), and name them.
        """
        waits = [
            label
            for label, duty in duties.items()
            if duty is not Duty.JUDGE
            and self._places.node_of(label) in self._nodes
            and (
                (self._places.was_moved(label) and label not in self._begun)
                or self._shards.is_compared(_stage(label))
            )
        ]
        for label in waits:
            self.notes.setdefault(
                label,
                f"nothing is moved for load: {label} has not begun on"
                f" {self._places.node_of(label)} yet",
            )
        return bool(waits)

    def _urgent(self, duties: Mapping[str, Duty], now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return the moves away from the first node that is lost (SG3)."""
        lost = [label for label, duty in duties.items() if duty in (Duty.RECOVER, Duty.TAKE_BACK)]
        for node in dict.fromkeys(self._places.node_of(label) for label in lost):
            planned: dict[str, int] = {}
            found = []
            for label in lost:
                if self._places.node_of(label) == node:
                    action = (
                        self._recover(label, node, planned, now_ms)
                        if duties[label] is Duty.RECOVER
                        else self._take_back(label, node, now_ms)
                    )
                    found += [] if action is None else [action]
            if found:
                return self._in_parallel(found, now_ms)
        return ()

    def _in_parallel(
        self, found: Sequence[ScalingDecision], now_ms: int
    ) -> tuple[ScalingDecision, ...]:
        """Return ``found``, the moves away from a lost node, and the split of a shard of which one
        of them moves the last replica, after the moves of its halves (SG15). The moves of other
        shards that may be split say why these are not.
        """
        moves, split = list(found), tuple[ScalingDecision, ...]()
        for number, move in sorted(enumerate(found), key=lambda each: -self._busy(each[1].label)):
            shard = _stage(move.label)
            if move.cause is not Cause.LOST or not self._may_be_parallel(shard, now_ms):
                continue
            hindrance = self._shards.hindrance(shard, now_ms)
            if split:
                hindrance = f"the split of {split[-1].label} is under way"
            elif not hindrance:
                split = self._split_of_lost(move, found, now_ms)
                hindrance = "" if split else "no two nodes of the pool can take its halves"
            if hindrance:
                because = f"{move.because}. {shard} is not split: {hindrance}"
                moves[number] = replace(move, because=because)
        return (*moves, *split)

    def _may_be_parallel(self, shard: str, now_ms: int) -> bool:
        """Return whether a shard of a lost node is to be split if it can be: it runs nowhere, and
        no attempt to split it is open or confirmed.
        """
        return (
            self._rules.is_parallel
            and bool(self._shards.halves(shard))
            and not self._shards.is_compared(shard)
            and not self._shards.is_split(shard)
            and all(self._runs_nowhere(each, now_ms) for each in self._labels_of(shard))
        )

    def _runs_nowhere(self, label: str, now_ms: int) -> bool:
        place = self._places.node_of(label)
        state = self.node_state(place, now_ms)
        return self._runs(label, place, state, now_ms) is Runs.NOWHERE

    def _split_of_lost(
        self, move: ScalingDecision, moves: Iterable[ScalingDecision], now_ms: int
    ) -> tuple[ScalingDecision, ...]:
        """Return the split of the shard that ``move`` moves, after the moves of its halves; empty
        if they would not have nodes of their own. ``moves``: of all replicas of the lost node.
        """
        going = {each.label: each.target for each in moves}
        places, _ = self._places_of_halves(_stage(move.label), going, now_ms)
        because = f"{move.because}; its halves compute the state anew: {_on_nodes(places)}"
        return self._halving(move.label, places, because) if places else ()

    def _not_begun(self, duties: Mapping[str, Duty], now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return the moves back of replicas that do not begin where they were moved (SG5)."""
        found = []
        for label, duty in duties.items():
            place, home = self._places.node_of(label), self._home[label]
            if (
                duty is not Duty.WAIT
                or place == home
                or not self._is_scalers(label)
                or self._running_on(label, "", now_ms)
            ):
                self._nowhere_since_ms.pop(label, None)
                continue
            since_ms = self._nowhere_since_ms.setdefault(label, now_ms)
            if now_ms - since_ms >= BEGIN_MS_MAX and self._targets(label, [home], now_ms):
                because = (
                    f"it has not begun on {place} for {(now_ms - since_ms) // 1_000} s, and its own"
                    f" node {home} is there again"
                )
                found.append(ScalingDecision(label, place, home, Cause.BACK, because))
        return tuple(found)

    def _recover(
        self, label: str, source: str, planned: dict[str, int], now_ms: int
    ) -> ScalingDecision | None:
        """Return the move of a replica away from a lost node. ``planned``: load in permille that
        this action has given to each node so far; the replica's is added.
        """
        home = self._home[label]
        targets = self._targets(label, [*self._rules.pool, home], now_ms)
        silent = f"node {source} was silent for {self._nodes[source].silence.ms / 1_000:.1f} s"
        if not targets:
            self.notes[label] = (
                f"{silent}, and no node of the pool can take {label}: start {source} again, or name"
                " more nodes under scaling.nodes"
            )
            return None
        track = self._tracks.get(label)
        busy = 0 if track is None else track.seen[-1][1].busy_permille
        target = max(targets, key=lambda node: self._room(node) - planned.get(node, 0))
        planned[target] = planned.get(target, 0) + busy
        because = f"{silent}; {target} has room for {_cores(self._room(target))} busy cores"
        return ScalingDecision(label, source, target, Cause.LOST, because)

    def _take_back(self, label: str, source: str, now_ms: int) -> ScalingDecision | None:
        """Return the move of a replica to the node that still runs it."""
        for target in self._running_on(label, source, now_ms):
            if not self._places.rejected(label, target):
                because = (
                    f"node {source}, to which it was moving, was silent for"
                    f" {self._nodes[source].silence.ms / 1_000:.1f} s; it still runs on {target}"
                )
                return ScalingDecision(label, source, target, Cause.TARGET_LOST, because)
        return None

    def _targets(self, label: str, nodes: Sequence[str], now_ms: int) -> list[str]:
        """Return the ``nodes`` to which a replica may move now (SG6)."""
        return [
            node
            for node in dict.fromkeys(nodes)
            if self._is_fresh(node, now_ms) and not self._places.rejected(label, node)
        ]

    def _slide(self, judged: Collection[str], now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return the move that relieves the node of an overloaded replica most; empty if there is
        none.
        """
        overloaded = [label for label in judged if self.is_overloaded(label, now_ms)]
        best: tuple[tuple[int, bool, int, str], ScalingDecision] | None = None
        for hot in overloaded:
            source = self._places.node_of(hot)
            before = self._per_core(source, self.load_permille(source))
            found = [
                (score, self._slide_of(label, hot, target))
                for label in judged
                if self._places.node_of(label) == source
                and label not in self._rules.passive
                and self._may_move(label, now_ms)
                for target in self._targets(label, [*self._rules.pool, self._home[label]], now_ms)
                if before - (score := self._score(label, hot, target))[0] >= RELIEF_MIN_PERMILLE
            ]
            if not found:
                self.notes[hot] = self._no_relief(hot, source, now_ms)
                continue
            first = min(found, key=lambda each: each[0])
            if best is None or first[0] < best[0]:
                best = first
        return () if best is None else (best[1],)

    def _score(self, label: str, hot: str, target: str) -> tuple[int, bool, int, str]:
        """Return how good a move is, lower first: the load of the more loaded node after it; then
        whether the overloaded replica ``hot`` itself moves; then the busiest one.
        """
        source, busy = self._places.node_of(label), self._busy(label)
        after = max(
            self._per_core(source, self.load_permille(source) - busy),
            self._per_core(target, self.load_permille(target) + busy),
        )
        return after, label != hot, -busy, label

    def _slide_of(self, label: str, hot: str, target: str) -> ScalingDecision:
        source = self._places.node_of(label)
        because = (
            f"{self._overload_of(hot)};"
            f" {source} has {self._in_use(source)}, {target} {self._in_use(target)};"
            f" {label} takes {_cores(self._busy(label))}"
        )
        return ScalingDecision(label, source, target, Cause.OVERLOAD, because)

    def _overload_of(self, hot: str) -> str:
        """Return the sentence, with figures, that states why a replica counts as overloaded."""
        track = self._tracks[hot]
        last, need = track.seen[-1][1], track.need_permille
        behind_ms = last.behind * self._rules.bucket_ms
        needed = f", to keep up they need {need / 10:.0f} %" if need else ""
        return (
            f"{hot} is overloaded for {self._rules.for_ms / 1_000:.0f} s: its batches fill"
            f" {last.busy_permille / 10:.0f} % of the time{needed}, the limit is"
            f" {self._rules.above_permille / 10:.0f} %, and it is {behind_ms / 1_000:.1f} s behind"
        )

    def _no_relief(self, hot: str, source: str, now_ms: int) -> str:
        """Return why no move helps an overloaded replica."""
        if not any(self._is_fresh(node, now_ms) for node in self._rules.pool):
            return f"{hot} is overloaded, and no node of the pool is heard"
        if self._has_its_node(hot):
            return (
                f"{hot} is overloaded although it has node {source} for itself: a move to a node"
                " like it cannot help. More cores or a cheaper function can"
            )
        return (
            f"{hot} is overloaded, and no move to a node of the pool, or to the node of the file,"
            f" would relieve {source} now: each is as busy, may not run it, or a move was made or"
            " withdrawn a short time ago"
        )

    def _has_its_node(self, label: str) -> bool:
        """Return whether no other replica takes much of the node of ``label``."""
        node = self._places.node_of(label)
        others = self.load_permille(node) - self._busy(label)
        return self._per_core(node, others) < RELIEF_MIN_PERMILLE

    def _halve(self, judged: Collection[str], now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return the split of the first overloaded shard that no move relieves, after the moves of
        its halves; empty if there is none (SG11).
        """
        for hot in judged:
            if not self.is_overloaded(hot, now_ms) or not self._has_its_node(hot):
                continue
            shard = _stage(hot)
            hindrance = self._shards.hindrance(shard, now_ms)
            places = {} if hindrance else self._places_that_relieve(hot, now_ms)
            if not places:
                why = hindrance or (
                    "no nodes that are heard have room for both halves; name more under"
                    " scaling.nodes"
                )
                self.notes[hot] += f". The shard is not split: {why}"
                continue
            source = self._places.node_of(hot)
            because = (
                f"{self._overload_of(hot)}; it has {source}, with {self._in_use(source)}, for"
                f" itself; each half is expected to take {_cores(self._busy(hot) // 2)}:"
                f" {_on_nodes(places)}"
            )
            return self._halving(hot, places, because)
        return ()

    def _halving(
        self, label: str, places: Mapping[str, str], because: str
    ) -> tuple[ScalingDecision, ...]:
        """Return the split of the shard of replica ``label``, after the moves of its halves to
        ``places``.
        """
        shard, source = _stage(label), self._places.node_of(label)
        moves = [
            ScalingDecision(half, self._places.node_of(half), node, Cause.HALF, f"{shard} is split")
            for half, node in places.items()
            if node != self._places.node_of(half)
        ]
        wanted = self._shards.wanted(shard, because, 0)
        return (*moves, Halving(shard, source, _on_nodes(places), Cause.SPLIT, because, wanted))

    def _places_that_relieve(self, hot: str, now_ms: int) -> dict[str, str]:
        """Return the node of each replica of the halves of the overloaded shard; empty if the split
        would not relieve it, or one of them has no node.
        """
        source, process = self._places.node_of(hot), _process(hot)
        found, room = self._places_of_halves(_stage(hot), {}, now_ms)
        own = [node for label, node in found.items() if _process(label) == process]
        before = self._per_core(source, self.load_permille(source))
        is_relief = found and before - max(map(room.then, own)) >= RELIEF_MIN_PERMILLE
        return found if is_relief else {}

    def _places_of_halves(
        self, shard: str, going: Mapping[str, str], now_ms: int
    ) -> tuple[dict[str, str], Room]:
        """Return the node of each replica of the halves of ``shard``, and the load of all nodes
        then; no node if one of them has none. ``going``: nodes to which replicas move in the same
        action; if there are any, no process has both of its halves on one node, nor one beside
        itself if another node is as good.
        """
        room = Room({node: self._cores_of(node) for node in self._nodes})
        for node in self._nodes:
            room.add(node, self.load_permille(node))
        for label, node in going.items():
            room.add(node, self._busy(label))
        for label in self._labels_of(shard):
            if (node := going.get(label, self._places.node_of(label))) in self._nodes:
                room.will_leave(node, self._busy(label))
        found: dict[str, str] = {}
        for half in reversed(self._shards.halves(shard)):
            for label in self._labels_of(half):
                taken = {
                    found[each]
                    for each in found
                    if _stage(each) == half or (going and _process(each) == _process(label))
                }
                nodes = [
                    node
                    for node in self._nodes_for(label, now_ms)
                    if node not in taken and self.node_state(node, now_ms) is not NodeState.LOST
                ]
                if not nodes:
                    return {}, room
                nodes.sort(key=lambda node: node in going.values())
                found[label] = room.take(nodes, self._busy(f"{shard}.{_process(label)}") // 2)
        return dict(sorted(found.items())), room

    def _cores_of(self, node: str) -> int:
        """Return the cores of a node; 1 if it has never sent a report."""
        report = self._nodes[node].report
        return 1 if report is None else max(1, report.cores)

    def _nodes_for(self, label: str, now_ms: int) -> list[str]:
        """Return the nodes that may have a replica of a half: that of its place first (SG6)."""
        own = self._places.node_of(label)
        there = [own] if self._is_fresh(own, now_ms) else []
        return [*there, *self._targets(label, self._rules.pool, now_ms)]

    def _may_move(self, label: str, now_ms: int) -> bool:
        """Return whether a replica may be moved for its load now (SG4, SG8)."""
        moved_ms = self._moved_ms.get(label)
        return now_ms >= self._avoided_until_ms.get(label, now_ms) and (
            moved_ms is None or now_ms - moved_ms >= self._hold_ms(label)
        )

    def _hold_ms(self, label: str) -> int:
        """Return the shortest time between two moves of a replica for its load, in ms (SG4)."""
        return self._rules.rest_ms << min(self._decided.get(label, 0), DOUBLINGS_MAX)

    def _back(self, judged: Iterable[str], now_ms: int) -> tuple[ScalingDecision, ...]:
        """Return the move of a replica back to the node of the file; empty if there is none."""
        for label in judged:
            track = self._tracks.get(label)
            since_ms = None if track is None else track.low_since_ms
            if since_ms is None or now_ms - since_ms < self._hold_ms(label):
                continue
            source, home = self._places.node_of(label), self._home[label]
            because = (
                f"load is low: {home} has {self._in_use(home)}, and with {label}, which takes"
                f" {_cores(self._busy(label))}, it stays below half of"
                f" {self._rules.above_permille / 10:.0f} %"
            )
            return (ScalingDecision(label, source, home, Cause.BACK, because),)
        return ()

    def _could_go_back(self, label: str, now_ms: int) -> bool:
        """Return whether a replica is away from the node of the file by a scaler's decision, and
        would leave that node with little load (SG5).
        """
        place, home = self._places.node_of(label), self._home[label]
        if place == home or not self._is_scalers(label):
            return False
        last = self._tracks[label].seen[-1][1]
        then = self._per_core(home, self.load_permille(home) + last.busy_permille)
        return (
            not (label in self._rules.passive and last.leads)
            and bool(self._targets(label, [home], now_ms))
            and self._lag_ms(last.behind) <= LAG_CHANGE_MS
            and 2 * max(then, last.busy_permille) <= self._rules.above_permille
        )

    def _is_scalers(self, label: str) -> bool:
        """Return whether a scaler has given a replica its place (SG5)."""
        _, cause = self._causes.get(label, ("", ""))
        return bool(cause)

    def _busy(self, label: str) -> int:
        """Return the busy share of a replica in the last report of its node, in permille; 0 if it
        was removed, or is on a partner's node.
        """
        node = self._nodes.get(self._places.node_of(label))
        report = None if node is None else node.report
        return next((each.busy_permille for each in leading(report) if each.label == label), 0)

    def _room(self, node: str) -> int:
        """Return how much more a node can take, in permille of one core."""
        report = self._nodes[node].report
        return 0 if report is None else report.cores * 1_000 - self.load_permille(node)

    def _per_core(self, node: str, load: int) -> int:
        return load // self._cores_of(node)

    def _in_use(self, node: str) -> str:
        report = self._nodes[node].report
        cores = 0 if report is None else report.cores
        return f"{_cores(self.load_permille(node))} of {cores} cores in use"


def _stage(label: str) -> str:
    """Return the stage of the replica ``label``."""
    return label.rpartition(".")[0]


def _process(label: str) -> str:
    """Return the id of the process of the replica ``label`` in its stage."""
    return label.rpartition(".")[2]


def _on_nodes(places: Mapping[str, str]) -> str:
    """Return replicas with their nodes, for people."""
    return ", ".join(f"{label} on {node}" for label, node in places.items())


def _cores(permille: int) -> str:
    """Return a number of busy cores in words."""
    return f"{permille / 1_000:.2f}"
