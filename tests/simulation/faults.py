"""The faults of a seed: drawn up front, as a list that can be shrunk and replayed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from simulation import cleaning, leaders_clocks, new_column, scenarios
from simulation.ends import BLOCKS_LOST
from simulation.hostile import AGAIN
from simulation.options import NAME, ON_NEW, ON_THIRD, OUTPUT, Options
from simulation.scenarios import OVERLOADS
from simulation.second_lives import ALL_BUT_INPUTS, STREAMS, STREAMS_OF_STAGES

PROCESS_KINDS = (
    "crash",
    "crash",
    "crash",
    "zombie",
    "zombie",
    "double",
    "pause",
    "cut_to",
    "cut_from",
    "cut",
    "slow",
    "clock",
)
WRITER_KINDS = ("write lost", "write late", "write applied", "write part", "write rejected")
WRITE_TWICE: Final = "write twice"
"""The client writes records a second time, and reports no error (librdkafka 4953)."""
_TWICE: Final = 0.35
"""Share of the faults "write applied" in whose place a seed has this one."""
DELIVERY_KINDS = ("commit lost", "commit applied", "commit torn")
UNRECORDED = "commit unrecorded"
"""A delivery's transaction is torn: its records are there, and its progress is not."""
REPLICA_KINDS = ("power", "disk", "dead")
SOURCE_KINDS = ("silent", "silent", "silent all")
INDEX_KINDS = ("index lost", "index cut")
AIMED_KINDS = (
    "twins",
    "race",
    "race",
    "fork crash",
    "fork zombie",
    "commit twice",
    "hostile",
    "hostile",
)
"""Places that chance alone seldom meets: two processes that begin together; one that is overtaken
while it fails over; a fork; a recovery of a recovery; records that nobody should have written.
"""
SPLIT = "split"
"""An operator wants the shard to be split."""
SPLIT_CRASH = "split crash"
"""A process of the shard dies when it has answered a split, or ended the shard. Of an odd value:
it sleeps there, and its replacement begins meanwhile.
"""
OUTLIVES = "outlives"
"""The current process of a service does not end with the others when topics are created again, but
after the fault's duration. Of an odd value: it sleeps for the first half of it.
"""
HELD_START = "held start"
"""A process is restarted, and held up, when it is about to begin an epoch, for the fault's
duration.
"""
GIVE_UP = "give up"
"""An operator gives up what a source owes up to then, though nothing is healed yet."""
COPY_ZOMBIE = "copy zombie"
"""A standby is held up, and replaced, when it has copied the files of a checkpoint."""
UNREACHABLE = "machine away"
"""A process dies and is not started again for long; nobody reaches the disk of its machine."""
UNHEARD_CLAIM: Final = "claim unheard"
"""Fault of the next record by which a standby lowers its claim: by ``value`` it gets lost, is late,
or is not acknowledged.
"""
OLD_CLAIMS: Final = "old claims"
"""A standby dies soon after it has lowered its claim, and for the fault's duration its machine is
away and its highest claim comes again and again: a write whose outcome its client never learned.
"""
SCENARIO_KINDS = (
    UNREACHABLE,
    "move",
    SPLIT,
    SPLIT_CRASH,
    HELD_START,
    COPY_ZOMBIE,
    UNHEARD_CLAIM,
    OLD_CLAIMS,
    GIVE_UP,
    "silent for good",
    "away",
    "branch fails",
    "blocks deleted",
    "blocks spoilt",
    "record crash",
    "wrong rows",
    "old words",
    "all blocks deleted",
    BLOCKS_LOST,
    "new version",
    "reshard",
    UNRECORDED,
    "input deleted",
    "made anew",
    "input recreated",
    leaders_clocks.KIND,
    OUTLIVES,
    new_column.KIND,
)
"""Kinds of faults of scenarios alone: a replica that an operator moves; a shard that one splits,
and what strikes it then; a machine that is away, and its disk with it; a node that is held up
while it starts; a standby that is replaced while it copies, or whose lower claim is not heard, or
is followed by what it claimed before; an operator who gives up what an input owes; an input that
never speaks again; a process that dies and is not started again for long; a branch's query that
dies; blocks that are deleted under those who read them, or of which they get other rows; a death
between a record and Spark's commit; a process that computes wrong rows from then on; heartbeats of
a primary that was replaced, which come again; blocks of closed buckets that are deleted, whoever
has them; blocks of a stream that are lost with a broker's disk, and whose partitions grow again
past the old offsets; a pipeline file with another version of the stage, with which the process is
restarted now, or when it ends; a file with another number of shards of the sources, or of the
output; a delivery's transaction without its progress; records of an input partition that retention
deletes; topics that are deleted and created again under all services; an input's topic, under the
running pipeline; another leader of an input partition, with a clock of its own; a process that goes
on when all topics are created again; a function that needs a column which its input gets, too.
"""
WIDE_KINDS = ("broker away", "power of all", "drift", "disk full")
"""In some seeds one or two of these beside the others: the broker answers nobody; all machines lose
their power at once; a clock runs fast or slow; a disk takes nothing more for a while.
"""
CLOCK_SET_MS = (-3_600_000, 3_600_000)
"""Displacements of a wall clock that stays as it was set, with healing too: no wait may depend on
it. A source needs a clock that is nearly right, for ``max_ahead``.
"""
NO_LEADER = "no leader"
"""A partition has no leader for a while: services neither read nor write it."""
LOG_LOST = "log lost"
"""Somebody deletes the records of a boundary log, which are lost for one process that follows logs
(``lost_logs``), for the fault's duration. ``value // 2`` is the number of the stream. Of an odd
value: all records so far, and the process is restarted at once. Else it has read these, and loses
the next one as well, before it reads it.
"""
_FIRST_TORN: Final = 0.6
"""Share of the seeds with rejected results in which the shards of an output change that begin with
a torn transaction. Of other seeds these are fewer: their results are found whatever is recorded.
"""
CLEANED = "topics cleaned"
"""Retention or compaction strikes topics, as their settings let it (``cleaning``)."""
_OF_CHANCE = ("", "chain", "two outputs", "too large", "delta")
"""Scenarios with the usual faults."""
_CLEANED_IN = ("moved", "passive", "outvoted", "upgraded", "output resharded", "added late")
"""Scenarios in which it may, too."""
BEFORE_RESULTS: Final = 1
"""``value`` of "all blocks deleted" that strikes only while the stage has recorded a late start and
no result.
"""
STORE_AWAY = "store away"
"""The store of checkpoints does not answer."""
EVERYTHING = "everything"
MANAGER: Final = "consistency_manager/sim"
"""Key of the consistency manager's process."""
DRIFT_PERMILLE = 200
CLOCK_JUMP_MS = 288_000


class Fault(NamedTuple):
    """One fault. ``value``: port calls until it strikes, the number of a partition, ms of a
    clock; as the kind needs.
    """

    at_ms: int
    kind: str
    target: str
    value: int
    duration_ms: int


def draw(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Draw the faults of a seed: nothing but silence, so that ``max_delay`` can be judged; or all
    kinds, and in half of the seeds aimed ones, too.
    """
    return some_twice(options.seed, _drawn(options, targets))


def some_twice(seed: int, found: Sequence[Fault]) -> list[Fault]:
    """Return ``found`` with "write twice" in place of some "write applied": nobody notices these.
    Drawn apart, so that all else in a seed stays what it was.
    """
    rng = random.Random(f"{seed}/written twice")
    return [
        fault._replace(kind=WRITE_TWICE)
        if fault.kind == "write applied" and rng.random() < _TWICE
        else fault
        for fault in found
    ]


def _drawn(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Return the faults of a seed, none of which is "write twice"."""
    found = _stores_fail(options, targets)
    if options.scenario not in _OF_CHANCE:
        found += _scenario(options, targets)
        if options.scenario == "moved" and _is_quiet_move(options):
            return sorted(fault for fault in found if fault.kind == "move")
        return sorted([*found, *(_cleaned(options) if options.scenario in _CLEANED_IN else [])])
    is_live = any(output.is_live for output in options.outputs)
    if is_live and random.Random(f"{options.seed}/silence").random() < 0.25:
        return _silence(options)
    found += [*_any(options, targets), *_aimed(options, targets), *_wide(options, targets)]
    found += [*_clocks_set(options, targets), *_cleaned(options), *_leaders_fail(options, targets)]
    found += _log_is_lost(options)
    return sorted([*found, *_one_delivery_down(options), *_begins_late(options, targets)])


def _stores_fail(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Let replicas lose their disks if there is a store of checkpoints, which has what they need;
    and let the store be unreachable for a while.
    """
    rng = random.Random(f"{options.seed}/store fails")
    replicas = [target for target in targets if target.startswith("processing/")]
    if not options.has_store:
        return []
    lost = [
        Fault(rng.randrange(options.heal_ms), "disk", rng.choice(replicas), 0, 0)
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    away = [
        Fault(rng.randrange(options.heal_ms), STORE_AWAY, EVERYTHING, 0, rng.randint(200, 4_000))
        for _ in range(rng.choice((0, 1, 2)))
    ]
    return [*lost, *away]


def _any(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Swarm: each class is off in half of the seeds, and the seeds differ in how many there are."""
    rng = random.Random(f"{options.seed}/faults")
    kinds = sorted(
        {
            *PROCESS_KINDS,
            *WRITER_KINDS,
            *DELIVERY_KINDS,
            *REPLICA_KINDS,
            *SOURCE_KINDS,
            *INDEX_KINDS,
        }
    )
    off = {kind for kind in kinds if rng.random() < 0.5}
    weights = {kind: PROCESS_KINDS.count(kind) + SOURCE_KINDS.count(kind) or 1 for kind in kinds}
    allowed = [
        kind
        for kind in kinds
        for _ in range(weights[kind])
        if kind not in off and _possible(kind, options, targets)
    ]
    if not allowed:
        return []
    lost: set[str] = set()
    found = []
    begin_ms = 0
    end_ms = options.heal_ms
    if (
        rng.random() < 0.5 and options.stages
    ):  # a failure of the input that is long enough to matter, and the other faults within it
        begin_ms = rng.randrange(options.heal_ms // 2)
        duration_ms = rng.randint(1_500, 5_000)
        end_ms = min(options.heal_ms, begin_ms + duration_ms + 1_500)
        kind = rng.choice(SOURCE_KINDS)
        found.append(
            Fault(begin_ms, kind, rng.choice(options.sources), rng.randrange(24), duration_ms)
        )
    for _ in range(rng.choice((0, 1, 2, 4, 8, 12))):
        kind = rng.choice(allowed)
        target = rng.choice(_targets(kind, options, targets))
        if kind in ("disk", "dead"):
            stage = target.split("/")[1].split(".")[0]
            if stage in lost:
                continue
            lost.add(stage)
        found.append(
            Fault(
                at_ms=rng.randrange(begin_ms, end_ms),
                kind=kind,
                target=target,
                value=rng.randint(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
                if kind == "clock"
                else rng.randrange(24),
                duration_ms=rng.choice((rng.randint(20, 400), rng.randint(200, 3_000), 6_000)),
            )
        )
    return found


def _one_delivery_down(options: Options) -> list[Fault]:
    """Stop one of two outputs for a while, in most seeds."""
    rng = random.Random(f"{options.seed}/apart")
    if options.second is None or rng.random() < 0.3:
        return []
    target = f"delivery/{rng.choice(options.outputs).name}"
    at_ms = rng.randint(500, options.heal_ms // 2)
    return [Fault(at_ms, "away", target, 0, rng.randint(500, 3_000))]


def _begins_late(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Start one reader seconds after all other processes, in some seeds with two outputs. No
    heartbeat of it exists until then.
    """
    rng = random.Random(f"{options.seed}/late reader")
    if options.scenario != "two outputs" or rng.random() < 0.7:
        return []
    readers = [each for each in targets if each.startswith(("processing/", "delivery/"))]
    return [Fault(0, "away", rng.choice(readers), 0, rng.randint(4_000, 8_000))]


def _wide(options: Options, targets: Sequence[str]) -> list[Fault]:
    """In one of four seeds: one or two of ``WIDE_KINDS``."""
    rng = random.Random(f"{options.seed}/wide")
    if rng.random() < 0.75:
        return []
    replicas = [target for target in targets if target.startswith("processing/")]
    found = []
    for kind in rng.sample(WIDE_KINDS, rng.choice((1, 1, 2))):
        at_ms, duration_ms = (
            rng.randrange(options.heal_ms),
            rng.choice((rng.randint(100, 900), rng.randint(900, 6_000))),
        )
        if kind == "drift":
            found.append(
                Fault(
                    at_ms,
                    kind,
                    rng.choice(targets),
                    rng.randint(-DRIFT_PERMILLE, DRIFT_PERMILLE),
                    0,
                )
            )
        elif kind == "disk full":
            found += [Fault(at_ms, kind, rng.choice(replicas), 0, duration_ms)] if replicas else []
        else:
            found.append(Fault(at_ms, kind, EVERYTHING, 0, duration_ms))
    return found


def _clocks_set(options: Options, targets: Sequence[str]) -> list[Fault]:
    """In one of eight seeds the wall clocks of one or two machines are set, and stay so."""
    rng = random.Random(f"{options.seed}/clocks set")
    if rng.random() < 0.875:
        return []
    those = [target for target in targets if not target.startswith("ingestion/")]
    return [
        Fault(rng.randrange(options.heal_ms), "clock set", target, rng.choice(CLOCK_SET_MS), 0)
        for target in rng.sample(those, min(len(those), rng.choice((1, 2))))
    ]


def _cleaned(options: Options) -> list[Fault]:
    """In one of five seeds the broker's cleaner comes, several times. ``duration_ms`` is the number
    of newest records that it leaves as they are.
    """
    rng = random.Random(f"{options.seed}/cleaned")
    if rng.random() < 0.8:
        return []
    kinds = cleaning.KINDS
    return [
        Fault(
            rng.randrange(options.heal_ms),
            CLEANED,
            "topics",
            rng.choice(kinds),
            rng.choice((0, 1, 5)),
        )
        for _ in range(rng.choice((2, 4, 8)))
    ]


def _log_is_lost(options: Options) -> list[Fault]:
    """In one of six seeds with a manager it loses the records of one boundary log for a while."""
    rng = random.Random(f"{options.seed}/log lost")
    if not options.has_manager or rng.random() < 5 / 6:
        return []
    at_ms, lasts_ms = rng.randrange(500, options.heal_ms), rng.randint(1_000, 4_000)
    return [Fault(at_ms, LOG_LOST, MANAGER, rng.randrange(24), lasts_ms)]


def _leaders_fail(options: Options, targets: Sequence[str]) -> list[Fault]:
    """In one of six seeds one to three partitions have no leader, each for a while: of inputs,
    boundary logs, blocks, control topics.
    """
    rng = random.Random(f"{options.seed}/leaders")
    if rng.random() < 5 / 6:
        return []
    streams = (*options.streams, *(stage.name for stage in options.stages))
    topics = [f"in.{source}" for source in options.sources for _ in range(2)]
    topics += [f"{NAME}.{stream}.boundaries" for stream in streams]
    topics += [f"{NAME}.{stream}.blocks.0" for stream in streams]
    topics += [
        f"{NAME}.control.{target.replace('/', '.')}"
        for target in targets
        if target.startswith(("ingestion/", "processing/", "delivery/"))
    ]
    found = []
    for _ in range(rng.choice((1, 2, 3))):
        topic, at_ms = rng.choice(topics), rng.randrange(options.heal_ms)
        partition = rng.randrange(options.source_partitions) if topic.startswith("in.") else 0
        lasts_ms = rng.choice((rng.randint(50, 900), rng.randint(900, 5_500)))
        found.append(Fault(at_ms, NO_LEADER, topic, partition, lasts_ms))
    return found


def _aimed(options: Options, targets: Sequence[str]) -> list[Fault]:
    """One or two faults of ``AIMED_KINDS``, each with what it needs to come to pass."""
    rng = random.Random(f"{options.seed}/aimed")
    if rng.random() < 0.5:
        return []
    replicas = [target for target in targets if target.startswith("processing/")]
    found: list[Fault] = []
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice(AIMED_KINDS)
        at_ms = rng.randrange(options.heal_ms)
        value = rng.randrange(24)
        duration_ms = rng.randint(20, 1_500)
        if kind == "commit twice":
            first, second = (
                rng.choice((*DELIVERY_KINDS, "commit torn")),
                rng.choice(("commit applied", *DELIVERY_KINDS)),
            )
            processes = options.outputs[0].processes
            target = f"delivery/{processes[at_ms % len(processes)]}"
            found += [
                Fault(at_ms, first, target, value, duration_ms),
                Fault(at_ms, second, target, value, duration_ms),
            ]
        elif kind == "hostile":
            target = rng.choice((*options.streams, *(stage.name for stage in options.stages)))
            found.append(Fault(at_ms, kind, target, value, duration_ms))
            if target not in options.streams:  # while a branch runs, if it may
                found.append(
                    Fault(
                        max(0, at_ms - options.max_delay_ms),
                        "silent all",
                        rng.choice(options.sources),
                        0,
                        5_000,
                    )
                )
        elif kind == "twins":
            found.append(Fault(at_ms, kind, rng.choice(targets), value, duration_ms))
        elif replicas:
            found.append(Fault(at_ms, kind, rng.choice(replicas), value, duration_ms))
            if kind.startswith("fork"):
                found.append(
                    Fault(
                        at_ms,
                        rng.choice(SOURCE_KINDS),
                        rng.choice(options.sources),
                        rng.randrange(24),
                        rng.randint(2_500, 5_000),
                    )
                )
    return found


def _scenario(options: Options, targets: Sequence[str]) -> list[Fault]:
    """Draw the faults that make the scenario, and in some seeds one or two of any kind besides."""
    rng = random.Random(f"{options.seed}/scene")
    replicas = [target for target in targets if target.startswith("processing/")]
    found = [*_inputs_fail(options, replicas, rng), *_processes_fail(options, replicas, rng)]
    if options.scenario in ("upstream backup", "amnesia"):
        found += _state_is_lost(options, rng)
    if options.scenario == "own bounds":
        found += _patience_is_tried(options, rng)
    if options.scenario == "asked for":
        found += _blocks_are_requested(options, replicas, rng)
    if options.scenario == "upgraded":
        found += _function_changes(options, replicas, rng)
    if options.scenario == "new column":
        found += _column_is_added(options, replicas, rng)
    if options.scenario == "end trimmed":
        found += _end_is_missed(options, rng)
    if options.scenario == "added late":
        found += _stage_is_added(options, replicas, rng)
    if options.scenario in ("resharded", "output resharded"):
        found += _numbers_change(options, targets, rng)
    found += _topics_change(options, targets, rng)
    found += _gives_up_early(options, targets, found)
    if options.scenario in OVERLOADS:
        found += _overload_is_worse(options, replicas, rng)
    if options.scenario == "pushed back":
        found += _reader_falls_behind(options, replicas, rng)
    alone = (
        *OVERLOADS,
        "outvoted",
        "upgraded",
        "input recreated",
        "arrival",
        "new column",
        "own bounds",
    )
    if rng.random() < 0.3 and options.scenario not in alone:
        is_last = any(fault.kind == UNREACHABLE for fault in found)  # who has the state
        lost = ("disk", "dead") if is_last else ()
        found += [fault for fault in _any(options, targets)[:2] if fault.kind not in lost]
    return [fault for fault in found if not _fills_small_room(options, fault)]


def _fills_small_room(options: Options, fault: Fault) -> bool:
    """Return whether a fault may leave so many blocks that no record names, and that only later
    buckets let go, that they fill a source's small room for good. The real room is for millions.
    """
    is_small = options.kept_max is not None
    return is_small and fault.kind in ("zombie", "double") and fault.target.startswith("ingestion/")


def _gives_up_early(
    options: Options, targets: Sequence[str], found: Sequence[Fault]
) -> list[Fault]:
    """In half of the seeds in which an operator gives up an input, let that be before all is
    healed, while those who read and write it are struck.
    """
    rng = random.Random(f"{options.seed}/gives up early")
    if options.scenario != "given up" or rng.random() < 0.5:
        return []
    silence = next(fault for fault in found if fault.kind == "silent for good")
    at_ms = min(silence.at_ms + rng.randint(1_000, 3_000), options.heal_ms - 1)
    source = f"ingestion/{silence.target}"
    others = [each for each in targets if each.startswith(("processing/", "delivery/"))]
    return [
        Fault(at_ms, GIVE_UP, silence.target, 0, 0),
        *(
            Fault(
                min(max(0, at_ms + rng.randint(-500, 800)), options.heal_ms - 1),
                rng.choice(("crash", "crash", "zombie", "double", "pause")),
                rng.choice((source, source, rng.choice(others))),
                rng.randrange(24),
                rng.randint(100, 1_500),
            )
            for _ in range(rng.choice((1, 2, 3)))
        ),
    ]


_PASSES: Final = (0, 3)
"""Choices of a branch's failure of a temporary cause (``engine.branch_failure``), before its blocks
are written and after, that are drawn where a batch takes several buckets, too. Few: how late
results are is judged only where nothing but an input fails.
"""


def _overload_is_worse(
    options: Options, replicas: Sequence[str], rng: random.Random
) -> list[Fault]:
    """In some seeds an input falls silent within a rush, or so that it comes back when the rush
    begins; in some a replica is struck in the overload, or in the corrections after it. Where each
    bucket has a batch of its own the query of a branch fails in the rush, and in some others it
    fails of what may pass (both drawn apart).
    """
    begin_ms, end_ms = (each * options.bucket_ms for each in options.rush[:2])
    found = []
    if rng.random() < 0.4:
        silent_ms = options.max_delay_ms + rng.randint(300, 3_000)
        at_ms = max(500, begin_ms + rng.randint(-silent_ms - 500, 4_000))
        partition = rng.randrange(options.source_partitions)
        found.append(Fault(at_ms, "silent", options.sources[0], partition, silent_ms))
    if rng.random() < 0.4:
        kind = rng.choice(("crash", "crash", "zombie", "pause"))
        at_ms = rng.randint(begin_ms + 1_000, end_ms + 5_000)
        found.append(Fault(at_ms, kind, rng.choice(replicas), rng.randrange(24), 500))
    apart, (first, *_) = random.Random(f"{options.seed}/branch fails"), options.stages
    at_ms, replica = apart.randint(begin_ms + 2_000, end_ms), apart.choice(replicas)
    choice = apart.randrange(24)
    if not first.is_batch_safe or (choice in _PASSES and not first.bucket_percent):
        found.append(Fault(at_ms, "branch fails", replica, choice, 0))
    return found


def _topics_change(options: Options, targets: Sequence[str], rng: random.Random) -> list[Fault]:
    """Draw the faults of scenarios in which something befalls topics; none in others."""
    match options.scenario:
        case "input gone":
            return _input_is_deleted(options, rng)
        case "input recreated":
            return _input_is_recreated(options, rng)
        case "arrival":
            return _leaders_change(options, targets, rng)
        case "made anew":
            return _topics_are_made_anew(options, targets, rng)
        case "outlived":
            found = _topics_are_made_anew(options, targets, rng)
            return [*found, *_processes_go_on(options, found, targets, rng)]
        case _:
            return []


def _topics_are_made_anew(
    options: Options, targets: Sequence[str], rng: random.Random
) -> list[Fault]:
    """Once, when there are results; and what befalls those who begin again."""
    at_ms = rng.randint(1_500, options.heal_ms // 2)
    # with a manager the input of stages is trimmed, and cannot be read from its beginning
    extents = (ALL_BUT_INPUTS, STREAMS, STREAMS) if options.has_manager else (STREAMS_OF_STAGES,)
    found = [Fault(at_ms, "made anew", EVERYTHING, rng.choice(extents), 0)]
    replicas = [target for target in targets if target.startswith("processing/")]
    readers = [target for target in targets if target.startswith(("processing/", "delivery/"))]
    if rng.random() < 0.5:  # it is behind, while others hear what it said in the first life
        late_ms = rng.randint(1_500, 4_000)
        found.append(Fault(at_ms - 1, "away", rng.choice(readers), 0, late_ms))
    if rng.random() < 0.5:  # its first life has the higher epochs, and both have checkpoints
        replica = rng.choice(replicas)
        found.append(Fault(at_ms - rng.randint(600, 1_000), "crash", replica, 0, 0))
        found.append(Fault(at_ms + rng.randint(2_000, 5_000), "crash", replica, 0, 0))
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(("crash", "zombie", "double", "pause", "power"))
        target = rng.choice((*replicas, rng.choice(targets)))
        struck_ms, value = at_ms + rng.randint(400, 5_000), rng.randrange(24)
        found.append(Fault(struck_ms, kind, target, value, rng.randint(100, 2_000)))
    return found


def _input_is_deleted(options: Options, rng: random.Random) -> list[Fault]:
    """While the ingestion of a source is away, nearly all that is in a partition is deleted."""
    source, partition = rng.choice(options.sources), rng.randrange(options.source_partitions)
    at_ms, away_ms = rng.randint(500, 2_000), rng.randint(1_000, 3_000)
    return [
        Fault(at_ms, "away", f"ingestion/{source}", 0, away_ms),
        Fault(at_ms + away_ms * 9 // 10, "input deleted", source, partition, rng.choice((0, 3))),
    ]


def _processes_go_on(
    options: Options, found: Sequence[Fault], targets: Sequence[str], rng: random.Random
) -> list[Fault]:
    """Let processes outlive their topics: any, and in most seeds whoever writes streams. In some,
    the process of a source that has written nothing yet: the first epochs of both lives have the
    same number, and the first records of both continue none.
    """
    (at_ms,) = (fault.at_ms for fault in found if fault.kind == "made anew")
    writers = [each for each in targets if each.startswith(("ingestion/", "processing/"))]
    those = {rng.choice(targets), *rng.sample(writers, rng.choice((0, 1, 2)))}
    outlive = [
        Fault(at_ms - 1, OUTLIVES, each, rng.randrange(2), rng.randint(500, 5_000))
        for each in sorted(those)
    ]
    if rng.random() < 0.5:
        source = rng.choice(options.sources)
        silent = Fault(0, "silent all", source, 0, at_ms + rng.randint(600, 900))
        return [silent, Fault(at_ms - 1, OUTLIVES, f"ingestion/{source}", 0, 4_000)]
    return outlive


def _input_is_recreated(options: Options, rng: random.Random) -> list[Fault]:
    """Delete an input's topic and create it again, at once or after a while; and what may befall
    the source meanwhile: most of all a pause, after which the topic has the position that it had.
    """
    source, at_ms = rng.choice(options.sources), rng.randint(700, options.heal_ms // 3)
    if rng.random() < 0.3:
        slept_ms = rng.randint(3_000, 5_000)
        return [
            Fault(at_ms - 100, "pause", f"ingestion/{source}", 0, slept_ms),
            Fault(at_ms, "input recreated", source, 1, 0),
        ]
    absent_ms = rng.choice((0, rng.randint(100, 900), rng.randint(2_400, 3_500)))
    found = [Fault(at_ms, "input recreated", source, 0, absent_ms)]
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(("crash", "zombie", "double", "pause", "pause", "pause"))
        struck_ms, lasts_ms = at_ms + rng.randint(-200, 1_500), rng.randint(500, 5_000)
        found.append(Fault(struck_ms, kind, f"ingestion/{source}", 3 * rng.randrange(8), lasts_ms))
    return found


def _leaders_change(options: Options, targets: Sequence[str], rng: random.Random) -> list[Fault]:
    """Give input partitions leaders with other clocks, again and again. In some seeds a machine's
    clock is set, too, and set back; a source's only where no limit needs a right one.
    """
    found = []
    for _ in range(rng.choice((1, 2, 3, 6))):
        source, partition = rng.choice(options.sources), rng.randrange(options.source_partitions)
        displaced_ms, at_ms = (
            leaders_clocks.displacement_ms(options, rng),
            rng.randrange(options.heal_ms),
        )
        of = leaders_clocks.target(source, partition)
        found.append(Fault(at_ms, leaders_clocks.KIND, of, displaced_ms, 0))
    those = [
        each
        for each in targets
        if options.max_ahead_ms is None or not each.startswith("ingestion/")
    ]
    for _ in range(rng.choice((0, 0, 1, 2))):
        of, at_ms = rng.choice(those), rng.randrange(options.heal_ms // 2)
        found.append(Fault(at_ms, "clock set", of, rng.choice(CLOCK_SET_MS), 0))
        if rng.random() < 0.5:
            found.append(Fault(at_ms + rng.randint(100, 3_000), "clock set", of, 0, 0))
    for _ in range(rng.choice((0, 0, 1, 2))):
        of, kind = rng.choice(targets), rng.choice(("crash", "zombie", "double", "pause"))
        struck_ms, value = rng.randrange(options.heal_ms), rng.randrange(24)
        found.append(Fault(struck_ms, kind, of, value, rng.randint(100, 2_000)))
    return found


def _patience_is_tried(options: Options, rng: random.Random) -> list[Fault]:
    """Let an input fall silent for longer than the strict output waits: mostly for less than the
    patient one, whose delivery is paused in some seeds until after its own wait.
    """
    (patient,) = (each for each in options.outputs if each.own_max_delay_ms is not None)
    patient_ms = patient.own_max_delay_ms or 0
    place = rng.choice(options.sources), rng.randrange(options.source_partitions)
    at_ms = rng.randint(800, 2_000)
    if rng.random() < 0.25:
        lasts_ms = patient_ms + rng.randint(500, 2_000)
        return [Fault(at_ms, "silent", *place, lasts_ms)]
    lasts_ms = rng.randint(options.max_delay_ms + 300, patient_ms - 4_500)
    found = [Fault(at_ms, "silent", *place, lasts_ms)]
    if rng.random() < 0.3:
        paused_ms = at_ms + lasts_ms - rng.randint(200, 1_500)
        found.append(Fault(paused_ms, "pause", f"delivery/{patient.name}", 0, patient_ms))
    return found


def _inputs_fail(options: Options, replicas: Sequence[str], rng: random.Random) -> list[Fault]:
    """Draw the faults of scenarios in which inputs fail; none in others."""
    places = [
        (source, partition)
        for source in options.sources
        for partition in range(options.source_partitions)
    ]
    (source, partition), *others = rng.sample(places, len(places))
    wait_ms = options.max_delay_ms + options.bucket_ms
    found: list[Fault] = []
    match options.scenario:
        # the successor begins two seconds after the first tentative results, and needs a wait to
        # see that it stands
        case "second failure":
            at_ms = rng.randint(600, 1_000)
            found.append(Fault(at_ms, "silent", source, partition, wait_ms + rng.randint(0, 1_000)))
            found.append(
                Fault(at_ms + rng.randint(400, 1_500), "silent", *others[0], options.heal_ms)
            )
        case "ahead":
            if rng.random() < 0.3:
                found.append(
                    Fault(
                        rng.randint(600, 2_500),
                        "silent",
                        source,
                        partition,
                        wait_ms + rng.randint(500, 3_000),
                    )
                )
        case "flapping":
            at_ms = rng.randint(300, 1_000)
            while at_ms < options.heal_ms - wait_ms:
                duration_ms = rng.randint(wait_ms - 400, wait_ms + 600)
                found.append(Fault(at_ms, "silent", source, partition, duration_ms))
                at_ms += duration_ms + rng.choice((100, 500, 2_500))
        case "slow corrections":
            silent_ms = options.max_delay_ms + rng.randint(200, 2_000)
            found.append(Fault(rng.randint(800, 1_500), "silent", source, partition, silent_ms))
        case "given up" | "never back":
            found.append(
                Fault(
                    rng.randint(500, options.heal_ms // 2), "silent for good", source, partition, 0
                )
            )
            if options.scenario == "never back" and rng.random() < 0.5:
                kind = rng.choice(("crash", "zombie", "pause"))
                found.append(
                    Fault(
                        rng.randrange(options.heal_ms),
                        kind,
                        rng.choice(replicas),
                        rng.randrange(24),
                        500,
                    )
                )
        case "branch fails":
            found.append(
                Fault(
                    rng.randint(500, 2_000),
                    "silent",
                    source,
                    partition,
                    wait_ms + rng.randint(1_000, 3_000),
                )
            )
            found += [
                Fault(100, "branch fails", rng.choice(replicas), rng.randrange(24), 0)
                for _ in range(rng.choice((1, 1, 2)))
            ]
        case "forged":
            at_ms = rng.randint(500, 1_500)
            found.append(Fault(at_ms, "silent", source, partition, wait_ms + 3_000))
            for value in (*range(8), AGAIN):
                found.append(
                    Fault(
                        at_ms + wait_ms + rng.randint(0, 2_500),
                        "hostile",
                        options.last_stage,
                        value,
                        0,
                    )
                )
    return found


def _moved(options: Options, rng: random.Random) -> list[Fault]:
    """Return a move there, perhaps back, and what strikes the two nodes around it."""
    old, new = f"processing/{options.moved}", f"processing/{options.moved}{ON_NEW}"
    at_ms = rng.randint(600, options.heal_ms // 2)
    found = [Fault(at_ms, "move", old, 2 * rng.randrange(3), 0)]
    if rng.random() < 0.4:
        found.append(
            Fault(at_ms + rng.randint(100, 5_000), "move", old, 2 * rng.randrange(3) + 1, 0)
        )
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        kind = rng.choice(
            ("crash", "crash", "crash", "away", "zombie", "double", "pause", "cut", "slow")
        )
        strikes_ms = max(0, at_ms + rng.randint(-200, 3_000))
        found.append(
            Fault(
                strikes_ms,
                kind,
                rng.choice((old, new)),
                rng.randrange(24),
                rng.randint(100, 3_000),
            )
        )
    held = random.Random(f"{options.seed}/held start")
    if held.random() < 0.25:  # the old node restarts, and the new one begins meanwhile
        restart_ms, held_ms = at_ms + held.randint(0, 1_000), held.randint(500, 4_000)
        found.append(Fault(restart_ms, HELD_START, old, held.randrange(12), held_ms))
    if random.Random(f"{options.seed}/new node dies").random() < 0.15:
        gone_ms = at_ms + rng.randint(-500, 100)
        found.append(Fault(gone_ms, "dead", new, 0, 0))
    return found


def _scaled(options: Options, rng: random.Random) -> list[Fault]:
    """Return what strikes the two nodes and the manager, which moves a replica by itself."""
    old, new = f"processing/{options.moved}", f"processing/{options.moved}{ON_NEW}"
    manager = f"consistency_manager/{NAME}"
    at_ms = rng.randint(1_000, max(2_000, options.heal_ms // 2))
    dead = rng.random()
    if dead < 0.3:  # its machine is gone; nobody starts it again
        found = [Fault(at_ms, "dead", old, 0, 0)]
    elif dead < 0.5:
        found = [Fault(at_ms, "away", old, 0, rng.randint(4_000, 9_000))]
    else:
        found = []
    if dead >= 0.3 and rng.random() < 0.25:
        # Perhaps while it restores: it is struck when a move to it may be under way.
        found.append(Fault(at_ms + rng.randint(2_500, 9_000), "dead", new, 0, 0))
    kinds = ("crash", "crash", "away", "zombie", "double", "pause", "cut", "cut_from", "slow")
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        found.append(
            Fault(
                max(0, at_ms + rng.randint(-1_000, 8_000)),
                rng.choice(kinds),
                rng.choice((old, new, new, manager, manager)),
                rng.randrange(24),
                rng.randint(100, 3_000),
            )
        )
    return found


def _stage_is_down(
    options: Options, down: Sequence[str], at_ms: int, duration_ms: int
) -> list[Fault]:
    """Return the faults by which all replicas of a stage are down. In half of the seeds one comes
    back earlier, without its disk, and must wait for the machine of another one.
    """
    rng = random.Random(f"{options.seed}/comes back alone")
    if rng.random() < 0.5:
        return [Fault(at_ms, "away", each, 0, duration_ms) for each in down]
    first = rng.choice(down)
    longer_ms = duration_ms + rng.randint(1_000, 3_000)
    return [
        Fault(at_ms, "away", first, 0, duration_ms),
        Fault(at_ms + duration_ms // 2, "disk", first, 0, 0),
        *(Fault(at_ms, UNREACHABLE, each, 0, longer_ms) for each in down if each != first),
    ]


def _shard_is_split(options: Options, rng: random.Random) -> list[Fault]:
    """Return the wishes of an operator, where there is one, and what strikes the nodes of the shard
    and of its halves, and the manager.
    """
    stage = options.stages[0]
    old, new = f"processing/{options.moved}", f"processing/{options.moved}{ON_NEW}"
    own = [f"processing/{stage.name}.{number}" for number in range(stage.replicas)]
    managers = [f"consistency_manager/{NAME}"] * options.has_manager
    at_ms = rng.randint(800, 3_000)
    found = []
    if not options.splits_by_itself:
        found.append(Fault(at_ms, SPLIT, old, rng.randrange(8), 0))
        for _ in range(rng.choice((0, 0, 1, 2))):
            again_ms = at_ms + rng.randint(200, 9_000)
            found.append(Fault(again_ms, SPLIT, old, rng.randrange(8), 0))
    kinds = ("crash", "crash", "away", "zombie", "zombie", "double", "pause", "cut", "slow", "disk")
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        kind = rng.choice(kinds if options.has_store else kinds[:-1])
        target = rng.choice((*own, *own, new, new, *(managers if kind != "disk" else ())))
        struck_ms = max(0, at_ms + rng.randint(-500, 9_000))
        found.append(Fault(struck_ms, kind, target, rng.randrange(24), rng.randint(100, 3_000)))
    if rng.random() < 0.5:
        crash_ms, value = at_ms + rng.randint(-200, 3_000), rng.randrange(24)
        found.append(Fault(crash_ms, SPLIT_CRASH, rng.choice(own), value, rng.randint(100, 2_000)))
    if rng.random() < (0.9 if stage.half_ms else 0.4):  # a branch may run when the halves take over
        silent_ms, source = at_ms + rng.randint(0, 6_000), rng.choice(options.sources)
        found.append(Fault(silent_ms, "silent all", source, 0, rng.randint(1_500, 5_000)))
    if options.splits_by_itself and rng.random() < 0.3:  # perhaps while a half begins there
        found.append(Fault(at_ms + rng.randint(3_000, 9_000), "dead", new, 0, 0))
    if options.recovers_in_parallel:
        found += _node_is_lost(options, at_ms)
    moves = random.Random(f"{options.seed}/moved while it is split")
    if not options.splits_by_itself and moves.random() < 0.4:
        found.append(Fault(at_ms + moves.randint(-500, 4_000), "move", old, 0, 0))
    return found


def _node_is_lost(options: Options, at_ms: int) -> list[Fault]:
    """Return the loss of the node of the shard, in some seeds before it is overloaded, and what
    strikes the nodes of the pool while the shard and its halves begin there.
    """
    old = f"processing/{options.moved}"
    rng = random.Random(f"{options.seed}/node is lost")
    lost_ms = at_ms + rng.choice((0, 1_000, 4_000))
    found = [
        Fault(lost_ms, "dead", old, 0, 0)
        if rng.random() < 0.6
        else Fault(lost_ms, "away", old, 0, rng.randint(4_000, 9_000))
    ]
    if rng.random() < 0.3:  # it goes on beside its replacement
        found[0] = Fault(lost_ms, "cut", old, 0, rng.randint(4_000, 7_000))
    for _ in range(rng.choice((0, 0, 1, 2))):
        target = f"{old}{rng.choice((ON_NEW, ON_THIRD))}"
        struck_ms = lost_ms + rng.randint(2_500, 9_000)
        kind = rng.choice(("crash", "double", "pause", "cut"))
        found.append(Fault(struck_ms, kind, target, rng.randrange(24), rng.randint(100, 3_000)))
    return found


def _is_quiet_move(options: Options) -> bool:
    """Whether nothing strikes while a replica moves by the store: then the move must come to its
    end.
    """
    return options.has_store and random.Random(f"{options.seed}/quiet move").random() < 0.3


def _processes_fail(options: Options, replicas: Sequence[str], rng: random.Random) -> list[Fault]:
    """Draw the faults of scenarios in which processes, or what they wrote, fail; none in others."""
    output = f"delivery/{OUTPUT}"
    match options.scenario:
        case "stage down":
            at_ms = rng.randint(500, options.heal_ms // 2)
            duration_ms = rng.randint(500, 3_000)
            stage = rng.choice(options.stages).name
            down = [each for each in replicas if each.startswith(f"processing/{stage}.")]
            return _stage_is_down(options, down, at_ms, duration_ms)
        case "moved" | scenarios.SCALED | scenarios.SPLIT:
            of = {"moved": _moved, scenarios.SCALED: _scaled, scenarios.SPLIT: _shard_is_split}
            return of[options.scenario](options, rng)
        case "passive":
            return _standbys_fail(options, rng)
        case "far rows":
            # No loss of power: it goes back further than what is remembered here.
            kinds = ("record crash", "record crash", "record crash", "zombie", "double")
            return [
                Fault(
                    rng.randrange(options.heal_ms),
                    rng.choice(kinds),
                    rng.choice(replicas),
                    rng.randrange(24),
                    rng.randint(20, 400),
                )
                for _ in range(rng.randint(3, 8))
            ]
        case "blocks deleted":
            at_ms, duration_ms = rng.randint(800, options.heal_ms // 2), rng.randint(500, 2_000)
            kind = (
                "blocks spoilt"
                if random.Random(f"{options.seed}/spoilt").random() < 0.4
                else "blocks deleted"
            )
            return [
                Fault(at_ms, "away", output, 0, duration_ms),
                Fault(at_ms + duration_ms - 1, kind, options.last_stage, rng.randrange(24), 0),
            ]
        case "outvoted":
            wrong, at_ms = rng.choice(replicas), rng.randint(600, options.heal_ms // 2)
            found = [Fault(at_ms, "wrong rows", wrong, 0, 0)]
            if rng.random() < 0.4:
                again_ms = at_ms + rng.randint(100, 1_500)
                found.append(Fault(again_ms, "crash", wrong, rng.randrange(24), 0))
            if rng.random() < 0.4:
                kind, manager_ms = rng.choice(("crash", "pause")), at_ms + rng.randint(-300, 1_500)
                found.append(
                    Fault(manager_ms, kind, "consistency_manager/sim", rng.randrange(24), 1_000)
                )
            return found
        case "recovery twice":
            at_ms, duration_ms = rng.randint(500, options.heal_ms // 2), rng.randint(1_000, 2_000)
            torn = Fault(at_ms + 1, "commit torn", output, rng.randint(1, 14), 0)
            kind = rng.choice(("commit applied", "commit applied", "commit torn"))
            return [
                Fault(at_ms, "away", output, 0, duration_ms),
                torn,
                Fault(at_ms + 2, kind, output, rng.randint(1, 14), 0),
            ]
        case _:
            return []


def _standbys_fail(options: Options, rng: random.Random) -> list[Fault]:
    """Whoever is primary first dies, or is held up for longer than others wait for it, or goes with
    its disk; then any of them, most of all on its disk: that is where a standby copies. At times
    the broker answers nobody for longer than others wait.
    """
    found: list[Fault] = []
    for stage in options.stages:
        if stage.ha != "passive":
            continue
        processes = [f"processing/{stage.name}.{number}" for number in range(stage.replicas)]
        if scenarios.goes_back(options.seed):
            found += _goes_back(options, processes)
            continue
        at_ms = rng.randint(1_000, options.heal_ms // 2)
        kind = rng.choice(("away", "away", "power", "disk", "pause", "zombie", "cut", "cut_to"))
        value, duration_ms = 3 * rng.randrange(4), rng.randint(2_000, 5_000)
        found.append(Fault(at_ms, kind, processes[0], value, duration_ms))
        if rng.random() < 0.4:  # a standby sleeps, and wakes beside whoever is primary
            slept_ms = rng.randint(2_200, 4_000)
            found.append(Fault(rng.randint(600, at_ms), "pause", processes[-1], 0, slept_ms))
        if rng.random() < 0.3:  # its replacement dies, too, while it seems to speak
            second_ms = at_ms + rng.randint(2_800, 4_500)
            found.append(Fault(second_ms - 500, "old words", processes[0], 0, 6_000))
            found += [Fault(second_ms, "away", each, 0, 4_500) for each in processes[1:2]]
        copying = random.Random(f"{options.seed}/{stage.name}/copy zombie")
        if copying.random() < 0.25:  # it wakes between two copies of its replacement
            copies_ms, held_ms = copying.randint(600, at_ms), copying.randint(200, 700)
            value = copying.randrange(3)
            found += [Fault(copies_ms, COPY_ZOMBIE, each, value, held_ms) for each in processes]
        for _ in range(rng.choice((0, 1, 2, 3))):
            kind = rng.choice(("crash", "zombie", "zombie", "pause", "away", "power"))
            value = 3 * rng.randrange(8) + rng.choice((2, 2, 0))
            struck_ms = max(0, at_ms + rng.randint(-1_000, 4_000))
            duration_ms = rng.randint(100, 3_000)
            found.append(Fault(struck_ms, kind, rng.choice(processes), value, duration_ms))
    if scenarios.goes_back(options.seed):
        return found
    if rng.random() < 0.3:
        at_ms = rng.randrange(options.heal_ms // 2)
        found.append(Fault(at_ms, "broker away", EVERYTHING, 0, rng.randint(900, 8_000)))
    if rng.random() < 0.4:
        found.append(
            Fault(
                rng.randrange(options.heal_ms // 2),
                rng.choice(SOURCE_KINDS),
                rng.choice(options.sources),
                rng.randrange(24),
                rng.randint(2_500, 5_000),
            )
        )
    return found


def _goes_back(options: Options, processes: Sequence[str]) -> list[Fault]:
    """Let a standby go on from an older checkpoint than that of the primary, whose machine is away;
    the primary comes back as a standby, and claims more. In some seeds who went on has recorded
    nothing but a first batch by then, and that process copies the older checkpoint when it takes
    over. In the others the log has more, and the machine of who went on is away in its turn, or its
    disk is lost: the process goes on from an older batch of its own. What it writes to claim less
    is not heard in most seeds.
    """
    rng = random.Random(f"{options.seed}/{processes[0]}/goes back")
    first, *others = processes
    at_ms, asleep_ms = rng.randint(2_800, 3_600), rng.randint(1_200, 1_800)
    # Asleep, the others copy nothing of what the primary does last. They wait for two seconds.
    found = [Fault(at_ms - asleep_ms, "pause", each, 0, asleep_ms) for each in others]
    found += [Fault(0, "away", each, 0, 400) for each in others]  # else one may be the primary
    if rng.random() < 0.5:
        unheard, back_ms = rng.choice((0, 1, 2, 2)), at_ms + rng.randint(2_400, 4_000)
        found += [Fault(at_ms - 1, "record crash", each, 0, 0) for each in others]
    else:
        unheard, back_ms = rng.choice((0, 1, 1, 2)), at_ms + rng.randint(2_800, 4_200)
        gone_ms = back_ms - rng.randint(1, 200)
        kinds = [rng.choice((UNREACHABLE, "disk")), UNREACHABLE]
        found += [
            Fault(gone_ms, kind, each, 0, rng.randint(7_000, 9_000))
            for kind, each in zip(kinds, others, strict=False)
        ]
    found += [Fault(at_ms, UNREACHABLE, first, 0, back_ms - at_ms)]
    found += [Fault(at_ms + 1, UNHEARD_CLAIM, first, rng.randrange(24), 0) for _ in range(unheard)]
    again = random.Random(f"{options.seed}/{first}/old claims")
    if options.has_manager and again.random() < 0.5:  # another one goes on meanwhile
        value, away_ms = again.randrange(6), again.randint(5_000, 9_000)
        found.append(Fault(back_ms + 900, OLD_CLAIMS, first, value, away_ms))
    return found


def _blocks_are_requested(
    options: Options, replicas: Sequence[str], rng: random.Random
) -> list[Fault]:
    """While delivery is away, blocks are deleted that it has not read, and that nobody else has;
    and what may befall those that make them again.
    """
    at_ms, duration_ms = rng.randint(800, options.heal_ms // 2), rng.randint(500, 2_000)
    lost_ms = at_ms + duration_ms - 1
    found = [
        Fault(at_ms, "away", f"delivery/{OUTPUT}", 0, duration_ms),
        Fault(lost_ms, "all blocks deleted", options.last_stage, 0, 0),
    ]
    # Of their own seed, as that of the other faults is older.
    how = random.Random(f"{options.seed}/lost")
    if how.random() < 0.5:
        found[1] = found[1]._replace(kind=BLOCKS_LOST)
        if how.random() < 0.5:
            reader = how.choice([f"processing/{options.stages[0].name}.0", *replicas[:1]])
            found = [
                Fault(at_ms, "away", reader, 0, duration_ms),
                Fault(lost_ms, BLOCKS_LOST, how.choice(options.streams), 0, 0),
            ]
        elif how.random() < 0.5:
            # One disk may have had the blocks of the stage and of its inputs.
            inputs = next((each.reads for each in options.stages[-1:]), ())
            found += [Fault(lost_ms, BLOCKS_LOST, each, 0, 0) for each in inputs]
    if rng.random() < 0.4:
        kind = rng.choice(("crash", "record crash", "zombie", "pause", "power"))
        mine = [each for each in replicas if each.startswith(f"processing/{options.last_stage}.")]
        struck_ms = lost_ms + rng.randint(0, 2_500)
        found.append(Fault(struck_ms, kind, rng.choice(mine), rng.randrange(24), 1_000))
    return found


def _stage_is_added(options: Options, replicas: Sequence[str], rng: random.Random) -> list[Fault]:
    """When the inputs have closed some buckets, and what may befall a process soon afterwards. In
    half of the seeds all are away soon, and find further blocks deleted if none had a result.
    """
    at_ms = rng.randint(1_500, options.buckets * options.bucket_ms * 3 // 4)
    found = [Fault(0, "away", each, 0, at_ms) for each in replicas]
    found += [Fault(at_ms - 1, "all blocks deleted", each, 0, 0) for each in options.sources]
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(("crash", "record crash", "zombie", "double", "pause", "power", "cut"))
        struck_ms, value = at_ms + rng.randint(0, 1_500), rng.randrange(24)
        found.append(Fault(struck_ms, kind, rng.choice(replicas), value, rng.randint(100, 2_000)))
    rng = random.Random(f"{options.seed}/deleted again")
    if rng.random() < 0.5:
        away_ms = at_ms + rng.randint(50, 600)
        back_ms = away_ms + rng.randint(300, 1_500)
        found += [Fault(away_ms, "away", each, 0, back_ms - away_ms) for each in replicas]
        found += [
            Fault(back_ms - 1, "all blocks deleted", each, BEFORE_RESULTS, 0)
            for each in options.sources
        ]
    return found


def _reader_falls_behind(
    options: Options, replicas: Sequence[str], rng: random.Random
) -> list[Fault]:
    """Stop a reader while its inputs continue, and strike a source meanwhile."""
    at_ms, away_ms = rng.randint(600, options.heal_ms // 3), rng.randint(2_000, 4_500)
    found = [Fault(at_ms, "away", rng.choice(replicas), 0, away_ms)]
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(("crash", "zombie", "double", "pause", "cut", "write applied"))
        struck_ms, value = at_ms + rng.randint(0, away_ms), rng.randrange(24)
        target = f"ingestion/{rng.choice(options.streams)}"
        found.append(Fault(struck_ms, kind, target, value, rng.randint(100, 2_000)))
    return found


def _function_changes(options: Options, replicas: Sequence[str], rng: random.Random) -> list[Fault]:
    """One replica after the other gets another version of its function, the first is restarted with
    it at once; and what may befall them meanwhile.
    """
    at_ms = rng.randint(600, options.heal_ms // 2)
    found = []
    for number, replica in enumerate(rng.sample(replicas, len(replicas))):
        later_ms = rng.randint(0, 2_000) if number else 0
        is_restarted = not number or rng.random() < 0.5
        found.append(Fault(at_ms + later_ms, "new version", replica, int(is_restarted), 0))
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(("crash", "record crash", "zombie", "double", "pause", "power"))
        struck_ms, target = at_ms + rng.randint(-500, 2_500), rng.choice(replicas)
        found.append(Fault(struck_ms, kind, target, rng.randrange(24), 1_000))
    return found


def _column_is_added(options: Options, replicas: Sequence[str], rng: random.Random) -> list[Fault]:
    """Give the column to the first stage, replica by replica, and let the second one use it, too
    early in some seeds where it has one replica; and strike both meanwhile.
    """
    at_ms = rng.randint(600, options.heal_ms // 3)
    found = []
    first, second = ([each for each in replicas if f"/{s.name}." in each] for s in options.stages)
    for number, replica in enumerate(first):
        later_ms = rng.randint(0, 4_000) if number else 0
        found.append(Fault(at_ms + later_ms, "new version", replica, 1, 0))
    for replica in second:
        is_early = len(second) == 1 and rng.random() < 0.5
        later_ms = rng.randint(-400, 2_000)
        found.append(Fault(at_ms + later_ms, new_column.KIND, replica, int(is_early), 0))
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(("crash", "zombie", "double", "pause"))
        struck_ms, target = at_ms + rng.randint(-500, 3_500), rng.choice(replicas)
        found.append(Fault(struck_ms, kind, target, rng.randrange(24), 800))
    return found


def _numbers_change(options: Options, targets: Sequence[str], rng: random.Random) -> list[Fault]:
    """Each change at its time, sometimes before the one before is over; and what befalls those who
    read the sources, or deliver the output, then, or anybody.
    """
    at_ms = rng.randint(600, options.heal_ms // 2)
    found: list[Fault] = []
    first = random.Random(f"{options.seed}/first transaction")
    is_bounded = options.output_bytes_max is not None
    if not options.changes and first.random() < (_FIRST_TORN if is_bounded else _FIRST_TORN / 4):
        found, at_ms = _first_transaction_is_torn(options, first)
    service = "ingestion/" if options.changes else "delivery/"
    those = [target for target in targets if target.startswith(service)]
    kinds = [*PROCESS_KINDS, *(WRITER_KINDS if options.changes else 3 * DELIVERY_KINDS)]
    for _ in range(options.files - 1):
        found.append(Fault(at_ms, "reshard", EVERYTHING, 0, 0))
        for _ in range(rng.choice((0, 1, 2, 4))):
            kind = rng.choice((*kinds, "twins", "twins"))
            struck_ms, duration_ms = at_ms + rng.randint(-300, 4_000), rng.randint(20, 2_500)
            value = rng.randrange(24) if kind != "clock" else rng.choice((-400, 400, 3_000))
            found.append(Fault(struck_ms, kind, rng.choice(those), value, duration_ms))
        at_ms += rng.choice((rng.randint(0, 1_000), rng.randint(2_000, 5_000)))
    if rng.random() < 0.5:
        found += _any(options, targets)
    return [fault for fault in found if fault.at_ms < options.heal_ms or fault.kind == "reshard"]


def _first_transaction_is_torn(options: Options, rng: random.Random) -> tuple[list[Fault], int]:
    """Let a delivery write its first records without progress, and die before it repairs that.
    Return the faults, and the time at which its output gets another number of shards.
    """
    output = options.outputs[0]
    target = f"delivery/{rng.choice(output.every_process[: output.numbers[0]])}"
    begins_ms = rng.randint(800, 2_000)
    found = [Fault(0, "away", target, 0, begins_ms)]
    found += [Fault(1, UNRECORDED, target, 0, 0), *7 * [Fault(2, "commit lost", target, 1, 0)]]
    found.append(Fault(begins_ms + rng.randint(400, 1_500), "away", target, 0, 4_000))
    return found, begins_ms + rng.randint(0, 1_000)


def _end_is_missed(options: Options, rng: random.Random) -> list[Fault]:
    """Let an input of the first stage fail, and stop that stage's reader while it has a branch. If
    a second stage is stopped, its own input fails once it is back.
    """
    first, *others = options.stages
    at_ms, silent_ms = rng.randint(800, 1_200), options.max_delay_ms + rng.randint(800, 1_500)
    away_ms = at_ms + options.max_delay_ms + 300
    back_ms = at_ms + silent_ms + rng.randint(3_000, 5_000)
    found = [Fault(at_ms, "silent all", first.reads[0], 0, silent_ms)]
    readers = [f"delivery/{OUTPUT}"]
    for stage in others:
        readers = [f"processing/{stage.name}.{number}" for number in range(stage.replicas)]
        found.append(Fault(back_ms + 500, "silent all", "b", 0, options.max_delay_ms + 1_000))
    return [*found, *(Fault(away_ms, "away", each, 0, back_ms - away_ms) for each in readers)]


def _state_is_lost(options: Options, rng: random.Random) -> list[Fault]:
    """Lose the disk of a stage that saves its state nowhere else, perhaps twice; and strike it
    while it begins anew.
    """
    (target,) = (
        f"processing/{stage.name}.0"
        for stage in options.stages
        if stage.ha in ("upstream_backup", "amnesia")
    )
    at_ms = rng.randint(1_200, options.heal_ms * 2 // 3)
    found = [Fault(at_ms, "disk", target, 0, 0)]
    if rng.random() < 0.4:
        found.append(Fault(at_ms + rng.randint(520, 1_200), "disk", target, 0, 0))
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(("crash", "record crash", "zombie", "double", "pause", "power", "cut"))
        struck_ms = at_ms + rng.randint(-500, 2_500)
        found.append(Fault(struck_ms, kind, target, rng.randrange(24), rng.randint(100, 2_000)))
    if rng.random() < 0.4:
        silent_ms = rng.randrange(options.heal_ms // 2)
        kind, source = rng.choice(SOURCE_KINDS), rng.choice(options.sources)
        found.append(Fault(silent_ms, kind, source, rng.randrange(24), rng.randint(2_500, 5_000)))
    return found


def _silence(options: Options) -> list[Fault]:
    """Nothing but inputs that fall silent for long: what ``max_delay`` promises can be judged."""
    rng = random.Random(f"{options.seed}/silences")
    found = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        at_ms = rng.randrange(options.heal_ms * 2 // 3)
        found.append(
            Fault(
                at_ms,
                rng.choice(SOURCE_KINDS),
                rng.choice(options.sources),
                rng.randrange(24),
                rng.randint(1_000, 6_000),
            )
        )
    return sorted(found)


def _targets(kind: str, options: Options, targets: Sequence[str]) -> Sequence[str]:
    if kind in SOURCE_KINDS:
        return options.sources
    if kind in INDEX_KINDS:
        return ("index",)
    if kind in WRITER_KINDS:
        return [target for target in targets if target.startswith(("ingestion/", "processing/"))]
    if kind in DELIVERY_KINDS:
        return [target for target in targets if target.startswith("delivery/")]
    if kind in ("disk", "dead"):
        several = {stage.name for stage in options.stages if stage.replicas > 1}
        return [
            target
            for target in targets
            if target.startswith("processing/") and target.split("/")[1].split(".")[0] in several
        ]
    if kind in REPLICA_KINDS:
        return [target for target in targets if target.startswith("processing/")]
    return targets


def _possible(kind: str, options: Options, targets: Sequence[str]) -> bool:
    return bool(_targets(kind, options, targets)) and (
        kind not in INDEX_KINDS or options.has_manager
    )
