"""Seeds in which shards are split: the rules of ``protocol.stage.splitting`` on real boundary logs,
with processes that take one step at a time.

A process is a generator that yields before and after everything that it writes. So it can be
killed, or overtaken by another process of its name, at each of these places. The logs are lists,
their states are the real ones; the stage's function sums the last buckets of each key, and in some
seeds mixes keys. What the services do around these rules is not here: there is no Spark, no broker,
and no branch.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.protocol.control.halving import Shards
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogEntry, Part
from anabranch.protocol.stage import splitting
from anabranch.protocol.stage.intervals import Interval, interval_of, stage_of
from anabranch.protocol.stage.recovery import beginning
from anabranch.protocol.stage.shares import Share
from anabranch.protocol.stage.splitting import ShardLogState, SplitDriver, SplitPhase, Splits
from simulation.history import History

STAGE: Final = "sums"
WIDTH_MS: Final = 250
SUMMED_BUCKETS: Final = 3
"""Number of buckets of a key that the stage's function adds up: its state."""
LATER_BUCKETS: Final = 2
"""Number of buckets by which some results are later than their rows."""
HORIZON: Final = SUMMED_BUCKETS + LATER_BUCKETS
"""State horizon of the stage, in buckets: a row changes no result that is later than it by more."""
KEYS: Final = 12
PAUSES: Final = (0.3, 0.97)
"""For each reader, the chance that it takes nothing in a step, while input goes on."""
TURNS_PER_BUCKET: Final = 12
FAULTS: Final = ("crash", "double", "disk", "pause")
PLACES: Final = (
    "epoch",
    "begun",
    "blocks",
    "record",
    "checkpoint",
    "answering",
    "answered",
    "ending",
    "ended",
)
"""Places at which a fault can strike: what a process has just done, or is about to do."""
STRUCK_MAX: Final = 3
"""Faults strike when their place is reached for the first time, up to the so manieth time."""
PAUSE_TURNS: Final = 150
SCALER_DECISIONS: Final = (12, 4)
"""Maximum number of decisions of each scaler."""
LONG_TURNS: Final = 4_000
"""Number of turns in which halves compute all of a run, and more."""
LATE: Final = 0.8
"""Chance that a record of the second scaler is late."""
JUMPS: Final = 0.05
"""Chance that an odd clock jumps before a decision."""

Row = tuple[int, int]
"""Key and value."""
Result = tuple[int, str, int]
"""Key, kind and value."""
State = dict[int, tuple[tuple[int, int], ...]]
"""Sums of the last buckets by key: (bucket, sum)."""


@dataclass(frozen=True)
class SplitFault:
    """Fault that strikes a process of ``shard`` at its ``number``-th arrival at ``place``."""

    kind: str
    shard: str
    place: str
    number: int


@dataclass(frozen=True)
class SplitOptions:
    """Options of a seed."""

    seed: int
    buckets: int = 60
    replicas: int = 1
    is_keyed: bool = True
    """Whether what the function makes of a key depends on the rows of the key alone."""
    single_rows_upto: int = 0
    """Last bucket up to which the function has one row at a time, and mixes nothing."""
    has_later_results: bool = False
    """Whether some results belong to later buckets than their rows, so that parts are open."""
    half_pace: int = 1
    """A half takes one step in so many turns of its own."""
    never_starts: bool = False
    """Whether the nodes of the halves are away."""
    reads_snapshots: bool = False
    """Whether processes begin to read logs at a snapshot."""
    has_odd_clock: bool = False
    """Whether the clocks of processes jump, so that they withdraw what others confirm."""
    is_wanted_again: bool = False
    """Whether the operator wants a split again that was withdrawn, and each split twice."""
    has_scalers: bool = False
    """Whether two scalers want splits again that were withdrawn, of which one may be late."""
    splits_half: bool = False
    """Whether a half is split, too, once it counts."""
    trims: bool = False
    """Whether the input is deleted as soon as the first shard has it."""
    is_overloaded: bool = False
    """Whether a shard that is to be split leaves the cores to a branch that leaves out rows, for
    ever, unless its halves wait for its stable results.
    """
    lost_at: int = 0
    """Bucket at which the processes of the shard die, and the split is wanted; 0: an operator wants
    it and they live.
    """
    restored_after: int = 0
    """Number of turns after which processes that begin then have a checkpoint of the shard."""
    keeps_input: bool = False
    """Whether the input is kept that halves of a shard need whose node is lost."""
    turn_ms: int = 50
    faults: tuple[SplitFault, ...] = ()


def draw(seed: int) -> SplitOptions:
    """Return the options of a seed."""
    rng = random.Random(f"{seed}/split")
    kind = rng.choices(("plain", "mixed", "slow", "away"), (70, 15, 5, 10))[0]
    has_odd_clock = kind == "plain" and rng.random() < 0.3
    options = SplitOptions(
        seed,
        replicas=2 if has_odd_clock else rng.choice((1, 1, 2)),
        is_keyed=kind != "mixed",
        has_later_results=rng.random() < 0.5,
        half_pace={"slow": 25}.get(kind, rng.choice((1, 1, 2))),
        never_starts=kind == "away",
        reads_snapshots=rng.random() < 0.3,
        has_odd_clock=has_odd_clock,
        is_wanted_again=has_odd_clock or rng.random() < 0.3,
        splits_half=rng.random() < 0.4,
        trims=rng.random() < 0.5,
    )
    # Drawn on its own, so that the other options of a seed stay.
    chance = 0.9 if kind == "mixed" else 0.2
    has_scalers = random.Random(f"{seed}/scalers").random() < chance
    # Halves that begin within the run end the overload.
    begins = kind in ("plain", "mixed")
    is_overloaded = begins and random.Random(f"{seed}/overloaded").random() < 0.3
    options = replace(options, has_scalers=has_scalers, is_overloaded=is_overloaded)
    if kind == "mixed" and random.Random(f"{seed}/single rows").random() < 0.5:
        options = replace(options, single_rows_upto=options.buckets // 2)
    lost = random.Random(f"{seed}/lost")
    if begins and not is_overloaded and lost.random() < 0.4:
        options = replace(
            options,
            lost_at=lost.randint(8, 40),
            restored_after=lost.choice((0, 100, LONG_TURNS, LONG_TURNS)),
            keeps_input=lost.random() < 0.7,
        )
    if kind == "slow":
        options = replace(options, buckets=350, turn_ms=1_000)
    if kind == "away":
        options = replace(options, turn_ms=800)
    shards = (STAGE, STAGE, *splitting.halves_of(STAGE))
    faults = [
        SplitFault(
            rng.choice(FAULTS), rng.choice(shards), rng.choice(PLACES), rng.randint(1, STRUCK_MAX)
        )
        for _ in range(rng.choice((0, 1, 2, 4, 6)))
    ]
    if rng.random() < 0.3:
        # A half that begins again while it is compared.
        half = rng.choice(splitting.halves_of(STAGE))
        faults.append(SplitFault("disk", half, "checkpoint", rng.randint(2, 2 * STRUCK_MAX)))
    if rng.random() < 0.2:
        # A shard that is overtaken between a decision and its record.
        faults.append(SplitFault("double", STAGE, rng.choice(("answering", "ending")), 1))
    if options.lost_at and lost.random() < 0.6:
        faults = []  # so that nothing but the loss delays the halves
    return replace(options, faults=tuple(faults))


def hashed(key: int) -> int:
    """Return the hash of a key."""
    return int.from_bytes(hashlib.blake2b(b"%d" % key, digest_size=4).digest(), "big")


def row_hash(result: Result) -> int:
    """Return the hash of a result row."""
    text = repr(result).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def share_of(shard: str) -> Share:
    """Return the share of a shard."""
    return Share(interval_of(shard), {"a": ("key",)})


def text_of(shard: str) -> str:
    """Return what the epochs of a shard state as their share."""
    return share_of(shard).text() if interval_of(shard).bits else ""


def fingerprint_of(share_text: str) -> str:
    """Return the fingerprint of the plan of a shard with this share."""
    return f"plan of {share_text}"


def computed(
    options: SplitOptions, state: State, bucket: int, rows: list[Row]
) -> tuple[State, dict[int, list[Result]]]:
    """Return the state and the results, by bucket, after the rows of ``bucket``."""
    sums: dict[int, int] = {}
    for key, value in rows:
        sums[key] = sums.get(key, 0) + value
    after: State = {}
    results: dict[int, list[Result]] = {}
    for key in sorted(state.keys() | sums.keys()):
        kept = tuple(each for each in state.get(key, ()) if each[0] > bucket - SUMMED_BUCKETS)
        kept = (*kept, (bucket, sums[key])) if key in sums else kept
        if not kept:
            continue
        after[key] = kept
        total = sum(value for _, value in kept) + (0 if options.is_keyed else len(rows))
        results.setdefault(bucket, []).append((key, "sum", total))
        if options.has_later_results and key % 3 == 0:
            later = bucket + LATER_BUCKETS
            results.setdefault(later, []).append((key, "later", total))
    return after, results


@dataclass
class Checkpoint:
    """Stored state of a process after one batch."""

    tip: BatchId
    bucket: int
    state: State


class Follower:
    """Reader of one stream's boundary log."""

    def __init__(self, world: SplitWorld, stream: str, state: LogState | None = None) -> None:
        """Begin at the log's beginning, or at a snapshot. ``state``: of the log before its first
        record, for a reader of several shards.
        """
        self.stream = stream
        self._log = world.logs.setdefault(stream, [])
        self._writers = world.writers
        self.state = LogState(self._writers) if state is None else state
        self.position = 0
        if world.options.reads_snapshots and self._log and world.rng.random() < 0.5:
            self._begin_at_snapshot(world.rng.randrange(len(self._log) + 1))

    def _begin_at_snapshot(self, as_of: int) -> None:
        before = LogState(self._writers)
        for offset, entry in enumerate(self._log[:as_of]):
            before.apply(offset, entry)
        self.state.adopt(before.snapshot(as_of))
        self.position = as_of

    def read(self, count: int | None = None) -> None:
        """Read up to the end, or the next ``count`` records."""
        end = len(self._log) if count is None else min(len(self._log), self.position + count)
        for offset in range(self.position, end):
            self.state.apply(offset, self._log[offset])
        self.position = end


@dataclass
class Decision:
    """Log that a process of a shard had read when it answered an attempt."""

    record: SplitStep
    read: dict[str, int]
    """Number of records by stream."""
    is_by_odd_clock: bool
    """Whether the clock of the process had jumped."""
    seen_ms: int
    """Time at which the process had read of the attempt."""


@dataclass
class Actor:
    """Process that is running."""

    name: str
    shard: str
    steps: Iterator[str]
    paused_until: int = 0


@dataclass
class Taken:
    """Buckets that a reader has taken."""

    upto: int = 0
    rows: dict[int, list[Result]] = field(default_factory=dict)


class SplitWorld:
    """One run."""

    def __init__(self, options: SplitOptions) -> None:
        """Prepare the input and the readers."""
        self.options, self.history = options, History()
        self.rng = random.Random(f"{options.seed}/run")
        self.turn = 0
        self.writers = tuple(str(number) for number in range(options.replicas))
        self.input: dict[int, list[Row]] = {
            bucket: [
                (self.rng.randrange(KEYS), self.rng.randrange(100))
                for _ in range(self.rng.choice((0, 4, 8)))
            ]
            for bucket in range(1, options.buckets + 1)
        }
        for bucket in range(1, options.single_rows_upto + 1):
            is_due = bucket % (HORIZON + 1) == 0
            self.input[bucket] = [(self.rng.randrange(KEYS), 1)] if is_due else []
        self.logs: dict[str, list[LogEntry]] = {}
        self.moves: list[SplitStep] = []
        self.order: list[tuple[str, int]] = []
        """Every record in the order of writing: log and offset."""
        self.blocks: dict[tuple[str, int], list[Result]] = {}
        self.store: dict[tuple[str, str], list[Checkpoint]] = {}
        self.decisions: list[Decision] = []
        self.taken = [Taken() for _ in PAUSES]
        self.actors: list[Actor] = []
        self._arrivals: dict[tuple[str, str], int] = {}
        self._lives = 0
        self.lost_upto = self.lost_turn = 0
        """Last bucket that the shard had closed when its processes died, and the turn; 0: they have
        not.
        """
        self._decided = 0
        """Number of decisions of scalers that are not written yet."""
        self._splits, self._splits_read = Splits(), 0
        self._states: dict[str, tuple[LogState, int]] = {}

    @property
    def now_ms(self) -> int:
        """Present time."""
        return self.turn * self.options.turn_ms

    @property
    def trimmed(self) -> int:
        """Last bucket of the input that is deleted: in some seeds all that the first shard has in
        its checkpoints.
        """
        if not self.options.trims:
            return 0
        own = [self.store.get((STAGE, writer)) for writer in self.writers]
        upto = min(each[-1].bucket if each else 0 for each in own)
        if not self.options.keeps_input:
            return upto
        closed = min(self.state_of(STAGE).closed(writer) for writer in self.writers)
        return min(upto, splitting.needed_after(closed, HORIZON))

    @property
    def is_restored(self) -> bool:
        """Whether a process of the first shard that begins has a checkpoint."""
        return self.turn >= self.lost_turn + (self.options.restored_after if self.lost_turn else 0)

    @property
    def available(self) -> int:
        """Last bucket of the input that is complete."""
        return min(self.options.buckets, self.turn // TURNS_PER_BUCKET)

    # -- logs

    def append(self, stream: str, entry: LogEntry) -> int:
        """Append a record to a boundary log. Return its offset."""
        log = self.logs.setdefault(stream, [])
        log.append(entry)
        self.order.append((stream, len(log) - 1))
        self.history.add(self.now_ms, stream, type(entry).__name__, repr(entry))
        return len(log) - 1

    def state_step(self, record: SplitStep) -> None:
        """Append a record to the log of moves."""
        self.moves.append(record)
        self.order.append(("moves", len(self.moves) - 1))
        self.history.add(self.now_ms, "moves", record.step, repr(record))
        self.history.reached(f"split {record.step}")

    def splits(self) -> Splits:
        """Return the attempts by the whole log of moves."""
        for offset in range(self._splits_read, len(self.moves)):
            self._splits.apply(self.moves[offset])
        self._splits_read = len(self.moves)
        return self._splits

    def state_of(self, stream: str) -> LogState:
        """Return the state of a whole boundary log."""
        log = self.logs.setdefault(stream, [])
        state, count = self._states.get(stream) or (LogState(self.writers), 0)
        for offset in range(count, len(log)):
            state.apply(offset, log[offset])
        self._states[stream] = state, len(log)
        return state

    # -- running

    def run(self) -> None:
        """Run to the end of the work, or until it takes too long."""
        last = self.options.buckets * TURNS_PER_BUCKET
        limit = last + 2 * splitting.STALLED_MS // self.options.turn_ms + 2_000
        if self.options.half_pace > 2:
            limit += splitting.SPLIT_MS_MAX // self.options.turn_ms
        for number in range(len(PAUSES)):
            self.actors.append(Actor(f"reader {number}", "", self._read(number)))
        self.actors.append(Actor("operator", "", self._operate()))
        if self.options.has_scalers:
            self.actors += [Actor(f"scaler {n}", "", self._scale(n)) for n in range(2)]
        while self.turn < limit and not self.is_over():
            self.turn += 1
            self._lose()
            self._supervise()
            actor = self.rng.choice(self.actors)
            if actor.paused_until > self.turn:
                continue
            try:
                place = next(actor.steps)
            except StopIteration:
                self.actors.remove(actor)
                continue
            if actor.shard and place in PLACES:
                self._strike(actor, place)

    def is_over(self) -> bool:
        """Whether all is read, no attempt is open, and no decision waits for its record."""
        if self._decided or any(each.upto < self.options.buckets for each in self.taken):
            return False
        splits = self.splits()
        return all(
            splits.of(shard).phase is SplitPhase.WITHDRAWN or self.state_of(shard).heirs
            for shard in {each.shard for each in self.moves}
        )

    def _lose(self) -> None:
        """Let the processes of the first shard die when that is due, unless it has ended."""
        if not 0 < self.options.lost_at <= self.available or self.lost_turn:
            return
        self.actors = [each for each in self.actors if each.shard != STAGE]
        self.lost_turn, self.lost_upto = self.turn, self.state_of(STAGE).closed_upto
        self.history.reached("shard is lost")

    def _strike(self, actor: Actor, place: str) -> None:
        at = actor.shard, place
        self._arrivals[at] = self._arrivals.get(at, 0) + 1
        for fault in self.options.faults:
            if (fault.shard, fault.place, fault.number) != (*at, self._arrivals[at]):
                continue
            self.history.add(self.now_ms, actor.name, fault.kind, place)
            self.history.reached(f"{fault.kind} at {place}")
            if fault.kind == "pause":
                actor.paused_until = self.turn + PAUSE_TURNS
            elif fault.kind == "double":
                self._start(actor.shard, actor.name.rpartition(".")[2])
            else:
                self.actors.remove(actor)
                if fault.kind == "disk" and self._can_lose_disk(actor.shard):
                    self.store.pop((actor.shard, actor.name.rpartition(".")[2]), None)
                return

    def _can_lose_disk(self, shard: str) -> bool:
        """Whether the process begins as the first one did: before it has results (HV8)."""
        state = self.state_of(shard)
        return not any(state.origin(writer).has_results for writer in self.writers)

    def _supervise(self) -> None:
        """Start the processes that should run and do not."""
        splits = self.splits()
        due = [STAGE]
        for shard in due:
            runs = splitting.half_runs(splits.of(shard))
            if runs and not self.options.never_starts:
                due += splitting.halves_of(shard)
        for shard in due:
            for replica in self.writers:
                name = f"{shard}/{replica}"
                is_there = any(each.name == name.replace("/", ".") for each in self.actors)
                if not is_there and not self.state_of(shard).heirs and self.rng.random() < 0.1:
                    self._start(shard, replica)

    def _start(self, shard: str, replica: str) -> None:
        self._lives += 1
        process = ShardProcess(self, shard, replica, self._lives)
        self.actors.append(Actor(f"{shard}.{replica}", shard, process.run()))

    # -- who is no process of a shard

    def _operate(self) -> Iterator[str]:
        """Want splits."""
        begin = self.rng.randrange(2, 20)
        while self.available < begin or bool(self.options.lost_at) > bool(self.lost_turn):
            yield "waits"
        yield from self._want(STAGE)
        if self.options.splits_half and self.state_of(STAGE).heirs:
            yield from self._want(self.rng.choice(splitting.halves_of(STAGE)))

    def _scale(self, number: int) -> Iterator[str]:
        """Want splits of the first shard again that were withdrawn, as a manager does, a few times.
        The second scaler is late: most of its records come when an attempt of the first one, which
        it has not seen, was withdrawn, so that they would begin another attempt.
        """
        left = SCALER_DECISIONS[number]
        while left:
            shards = Shards(dict.fromkeys([STAGE], splitting.halves_of(STAGE)))
            read = Splits()
            for step in self.moves:
                if read.apply(step):
                    shards.apply(step, 0)
            seen = read.of(STAGE)
            if seen.phase is not SplitPhase.WITHDRAWN:
                yield "rests"
                continue
            wanted = shards.wanted(STAGE, f"scaler {number}", self.now_ms)
            left, self._decided = left - 1, self._decided + 1
            yield "decides"
            is_late = number and self.rng.random() < LATE
            while is_late and not self._is_late_now(seen.number):
                yield "decides"
            self.history.reached("scaler wants a split")
            self.state_step(wanted)
            self._decided -= 1
            yield "wanted"

    def _is_late_now(self, attempt: int) -> bool:
        """Return whether a later attempt than ``attempt`` was answered, and none is open."""
        newest = self.splits().of(STAGE)
        return newest.number != attempt and newest.phase is not SplitPhase.WANTED

    def _want(self, shard: str) -> Iterator[str]:
        assert not splitting.rejected(shard, parents(), self.splits())
        tries = 2 if self.options.is_wanted_again else 1
        for _ in range(tries):
            self.state_step(SplitStep(shard, Step.WANTED, self.now_ms))
            yield "wanted"
            if self.options.is_wanted_again:
                self.state_step(SplitStep(shard, Step.WANTED, self.now_ms))
            while self.splits().of(shard).phase is not SplitPhase.WITHDRAWN:
                if self.state_of(shard).heirs:
                    return
                yield "waits"

    def _read(self, number: int) -> Iterator[str]:
        """Take buckets, as a stage that reads this one does."""
        taken = self.taken[number]
        followers: dict[str, Follower] = {}
        states: dict[str, ShardLogState] = {}
        for shard, parent in parents().items():
            states[shard] = ShardLogState(self.writers, states.get(parent))
            followers[shard] = Follower(self, shard, states[shard])
        while True:
            yield "reads"
            for follower in followers.values():
                follower.read(self.rng.choice((0, 1, 3, None)))
            upto = min(state.upto for state in states.values())
            if upto <= taken.upto:
                continue
            if self.available < self.options.buckets and self.rng.random() < PAUSES[number]:
                continue
            upto = min(upto, taken.upto + self.rng.choice((1, 2, 20)))
            for state in states.values():
                for bucket, _, parts in state.stable(taken.upto + 1, upto):
                    rows = taken.rows.setdefault(bucket, [])
                    for part in parts:
                        rows += self.blocks[part.attempt, part.bucket]
            taken.upto = upto
            for state in states.values():
                state.forget(upto)


def parents() -> dict[str, str]:
    """Return all shards that there may be, each with the one that it is a half of."""
    found = {STAGE: ""}
    for shard in (STAGE, *splitting.halves_of(STAGE)):
        found |= dict.fromkeys(splitting.halves_of(shard), shard)
    return found


class ShardProcess:
    """Process of one replica of a shard, until it dies or ends."""

    def __init__(self, world: SplitWorld, shard: str, replica: str, life: int) -> None:
        """Begin with nothing read."""
        self._world, self._shard, self._replica, self._life = world, shard, replica, life
        self._interval: Interval = interval_of(shard)
        self._log = Follower(world, shard)
        self._epoch = -1
        self._batch = 0
        self._tip: BatchId | None = None
        self._bucket = self._given_up = 0
        self._state: State = {}
        self._splits, self._moves_read = Splits(), 0
        bits = self._interval.bits
        stage = stage_of(shard)
        self._parent = Follower(world, Interval(bits[:-1]).name(stage)) if bits else None
        self._attempt = -1
        """Attempt for which a half begins."""
        self._driver: SplitDriver | None = None
        self._seen_ms = 0
        """Time at which it began to drive the attempt."""
        self._halves: list[Follower] = []
        self._ahead_ms = 0
        """Time by which the process's clock has jumped, in ms."""

    def run(self) -> Iterator[str]:
        """Take one step after the other."""
        world = self._world
        self._attempt = self._parent_attempt()
        started = EpochStarted(
            self._replica,
            fingerprint_of(text_of(self._shard)),
            f"{self._life}",
            bucket_ms=WIDTH_MS,
            share=text_of(self._shard),
            attempt=self._attempt,
        )
        self._epoch = world.append(self._shard, started)
        yield "epoch"
        self._log.read()
        if not (yield from self._restores()) or not (yield from self._begins()):
            return
        while True:
            yield "idle"
            self._log.read(None if world.rng.random() < 0.5 else 1)
            self._read_moves()
            if not self._goes_on():
                return
            is_compared = self._splits.of(self._shard).phase is SplitPhase.WANTED
            if not is_compared and world.rng.random() < 0.1:
                self._log.state.forget(self._log.state.upto - 2)
            yield from self._drive()
            has_turn = world.turn % self._pace() == 0 and self._has_cores()
            if self._bucket < world.available and has_turn:
                yield from self._run_batch()
                if not self._goes_on():
                    return

    def _has_cores(self) -> bool:
        """Return whether it may run a batch that counts."""
        is_split = self._splits.of(self._shard).phase is SplitPhase.WANTED
        is_awaited = self._driver is not None and self._driver.is_awaited
        return is_awaited or not (is_split and self._world.options.is_overloaded)

    def _pace(self) -> int:
        return 1 if self._parent is None else self._world.options.half_pace

    def _goes_on(self) -> bool:
        state = self._log.state
        if (state.epoch(self._replica) or 0) > self._epoch or state.heirs:
            return False
        if self._parent is None:
            return True
        self._parent.read()
        if self._parent_attempt() > self._attempt:
            return False
        return splitting.half_runs(self._splits.of(self._parent.stream))

    def _parent_attempt(self) -> int:
        """Return the newest attempt to split the shard that this one is a half of; -1: it is
        none.
        """
        self._read_moves()
        return -1 if self._parent is None else self._splits.of(self._parent.stream).number

    def _read_moves(self) -> None:
        moves = self._world.moves
        for offset in range(self._moves_read, len(moves)):
            self._splits.apply(moves[offset])
        self._moves_read = len(moves)

    def _ident(self) -> BatchId:
        self._batch += 1
        return BatchId(f"{self._shard.replace('.', '-')}-{self._replica}-{self._life}", self._batch)

    def _begins(self) -> Generator[str, None, bool]:
        """Load a checkpoint, or begin late as a half of the parent. Return whether that
        succeeded.
        """
        world, chain = self._world, self._log.state.chain(self._replica)
        own = world.store.setdefault((self._shard, self._replica), [])
        found = next((each for each in reversed(own) if each.tip in chain), None)
        if found is not None:
            self._load(found)
            self._tip = found.tip
            self._given_up = splitting.void_upto(self._log.state, HORIZON)
            return True
        if self._parent is None:
            return True
        self._parent.read()
        parent = self._parent.state
        begins = beginning(
            self._log.state,
            self._replica,
            HORIZON,
            "active",
            gone=lambda: max(
                world.trimmed, splitting.half_begins_after(parent, self._log.state, HORIZON)
            ),
            complete=lambda: 0,
        )
        world.history.reached("half begins")
        self._given_up = begins.given_up
        if not begins.after:
            return True
        return (yield from self._closes_empty(begins.after, None))

    def _closes_empty(self, upto: int, tip: BatchId | None) -> Generator[str, None, bool]:
        """Close buckets without results, with the input named as missing. Return whether that
        succeeded.
        """
        world, ident = self._world, self._ident()
        late = BoundaryRecord(
            self._replica,
            self._epoch,
            ident,
            tip,
            upto,
            missing=("a",),
            written_ms=world.now_ms,
        )
        world.append(self._shard, late)
        yield "begun"
        self._log.read()
        self._tip, self._bucket = ident, upto
        return self._log.state.accepted(self._replica, ident)

    def _restores(self) -> Generator[str, None, bool]:
        """Wait for a checkpoint, and answer meanwhile. Return whether there is anything to do after
        that.
        """
        world = self._world
        while True:
            self._log.read()
            self._read_moves()
            if not self._goes_on():
                return False
            if splitting.only_ends(self._splits.of(self._shard)):
                world.history.reached("ends without a checkpoint")
                yield from self._ends()
                return False
            if self._shard != STAGE or world.is_restored:
                return True
            yield from self._answers()
            yield "restores"

    def _load(self, checkpoint: Checkpoint) -> None:
        self._bucket, self._state = checkpoint.bucket, dict(checkpoint.state)

    def _run_batch(self) -> Iterator[str]:
        world = self._world
        last = min(world.available, self._bucket + world.rng.choice((1, 1, 2, 5)))
        if self._bucket < self._given_up:
            last = min(last, self._given_up)
        state = self._state
        results: dict[int, list[Result]] = {}
        for bucket in range(self._bucket + 1, last + 1):
            rows = [row for row in world.input[bucket] if self._interval.has(hashed(row[0]))]
            state, found = computed(world.options, state, bucket, rows)
            for of, made in found.items():
                own = [each for each in made if self._interval.has(hashed(each[0]))]
                results[of] = [*results.get(of, []), *own]
        ident = self._ident()
        attempt = f"{self._shard}/{ident}"
        parts = []
        for of, made in sorted(results.items()):
            if not made or of <= self._given_up:
                continue
            world.blocks[attempt, of] = made
            digest = sum(map(row_hash, made)) % 2**64
            parts.append(Part(of, 0, attempt, 1, 0, 1, len(made), digest))
        yield "blocks"
        record = BoundaryRecord(
            self._replica,
            self._epoch,
            ident,
            self._tip,
            last,
            tuple(parts),
            missing=("a",) if last <= self._given_up else (),
            written_ms=world.now_ms,
        )
        world.append(self._shard, record)
        yield "record"
        self._log.read()
        if not self._log.state.accepted(self._replica, ident):
            return
        self._tip, self._bucket, self._state = ident, last, state
        world.store.setdefault((self._shard, self._replica), []).append(
            Checkpoint(ident, last, dict(state))
        )
        yield "checkpoint"

    def _dawdles(self) -> Iterator[str]:
        """Take a while between a decision and its record."""
        for _ in range(self._world.rng.choice((0, 1, 5, 20, 40))):
            yield "dawdles"

    def _drive(self) -> Iterator[str]:
        """Do what is due of the split of this shard."""
        phase = self._splits.of(self._shard).phase
        yield from self._answers()
        if phase is SplitPhase.CONFIRMED:
            yield from self._ends()

    def _answers(self) -> Iterator[str]:
        """Answer the attempt to split this shard, if that is due."""
        world, attempt = self._world, self._splits.of(self._shard)
        if attempt.phase is SplitPhase.WANTED:
            if self._driver is None or self._driver.attempt != attempt.number:
                self._driver = SplitDriver(
                    self._shard,
                    attempt.number,
                    world.now_ms,
                    horizon=HORIZON,
                    width_ms=WIDTH_MS,
                )
                self._seen_ms = world.now_ms
                self._halves = [Follower(world, each) for each in splitting.halves_of(self._shard)]
            for follower in self._halves:
                follower.read(world.rng.choice((0, 1, None)))
            halves = [each.state for each in self._halves]
            if world.options.has_odd_clock and world.rng.random() < JUMPS:
                self._ahead_ms = splitting.SPLIT_MS_MAX
            now_ms = world.now_ms + self._ahead_ms
            answer = self._driver.answer(now_ms, world.now_ms, self._log.state, halves)
            if answer is not None:
                read = {each.stream: each.position for each in (self._log, *self._halves)}
                yield "answering"
                yield from self._dawdles()
                world.decisions.append(Decision(answer, read, self._ahead_ms > 0, self._seen_ms))
                world.state_step(answer)
                yield "answered"

    def _ends(self) -> Iterator[str]:
        """End the stream of this shard."""
        world = self._world
        record = splitting.end(
            self._replica, self._epoch, self._ident(), self._log.state, world.now_ms
        )
        yield "ending"
        yield from self._dawdles()
        world.append(self._shard, record)
        world.history.reached("shard ends")
        yield "ended"
