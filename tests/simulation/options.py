"""What one seed tries: the pipeline and the machine that it runs on. Printed in full when a
seed fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from anabranch.pipeline.model import Federation, HaMode
from simulation import scenarios

Operator = Literal["map", "sum", "both", "later", "far", "timed"]
"""Each row; sums of windows; rows at once and their number per bucket; each row a bucket later;
each row at the end of a long window; a timer per key that sets the next one. The second, the third
and the last have state.
"""

Policy = Literal["process", "delay", "suspend"]

NAME = "sim"
OUTPUT = "out"
SECOND = "second"
"""The other output, where there are two."""
WINDOW_BUCKETS = 2
"""Of the operator ``sum``."""
NEW_NODE = "north.7"
"""Runs nothing until a replica is moved to it."""


@dataclass(frozen=True)
class StageOptions:
    """One stage."""

    name: str
    reads: tuple[str, ...]
    operator: Operator
    replicas: int
    is_batch_safe: bool
    policy: Policy
    batch_ms: int = 0
    """What a batch takes beside the moments of every one."""
    ha: HaMode = "active"
    """Where it is passive, ``replicas`` are processes of one replica."""
    pace_ms: int = 0
    """See ``BatchRules``."""

    @property
    def horizon_buckets(self) -> int:
        """So much later than itself a record changes results, at most."""
        return {"sum": WINDOW_BUCKETS, "both": 1, "later": 1}.get(self.operator, 0)


@dataclass(frozen=True)
class OutputOptions:
    """One output: its topics are called as it is, the live one with ``.live`` behind."""

    name: str
    stream: str
    partitions: int
    is_live: bool
    is_upsert: bool
    shards: int = 1

    @property
    def processes(self) -> list[str]:
        """Who delivers it; the first also writes the live topic."""
        if self.shards == 1:
            return [self.name]
        return [f"{self.name}.{shard}" for shard in range(self.shards)]

    @property
    def live_topic(self) -> str:
        """Where it is live."""
        return f"{self.name}.live"


@dataclass(frozen=True)
class Options:
    """Everything but the faults."""

    seed: int
    sources: tuple[str, ...]
    source_partitions: int
    partitions: int
    output_partitions: int
    bucket_ms: int
    max_delay_ms: int
    buckets: int
    rows_max: int
    """Rows of a bucket in one input partition, at most."""
    out_of_orderness_ms: int
    hostile_percent: int
    late: Literal["dead_letter", "reassign"]
    idle_ms: int | None
    stages: tuple[StageOptions, ...]
    is_live: bool
    is_upsert: bool
    has_manager: bool
    latency_max_ms: int
    heal_ms: int
    trim_every_ms: int
    snapshot_every: int
    """SNAPSHOT_EVERY_RECORDS; in many seeds so few that boundary logs get a snapshot and are
    trimmed several times.
    """
    seen_wait_ms: int
    """How soon a boundary record that is not seen in the log is sent again; in many seeds
    much sooner than for real, so that it is there twice.
    """
    scenario: str = ""
    """See ``scenarios``."""
    rec_done_wait_ms: int | None = None
    """REC_DONE_WAIT_MS; None: as for real, which is more than a run lasts."""
    run_bytes_max: int | None = None
    """Of a transaction of delivery; None: as for real."""
    inherited_parts_max: int | None = None
    """Open parts that a branch can begin with; None: as for real."""
    input_parts_max: int | None = None
    """Of what a stage holds of its inputs; None: as for real."""
    grown_ms: int | None = None
    """Until then each source has a partition less; its producers find it before ingestion
    does, and send all that they had for it.
    """
    chain_records_max: int | None = None
    """Of a writer's chain that a log state remembers; None: as for real."""
    record_parts_max: int | None = None
    """Of one boundary record; None: as for real."""
    output_bytes_max: int | None = None
    """Of a record of the output topic; in some seeds so few that results with many digits are
    rejected. None: as for real.
    """
    ahead: tuple[int, int] = (0, 0)
    """One record of this bucket, counted from the beginning, is so many buckets in front of
    it; none is where the second is 0.
    """
    quiet: tuple[int, int] = (0, 0)
    """From the first of these buckets on, and before the second, there is no data; counted
    from the beginning.
    """
    edge_percent: int = 0
    """Of the rows: so many have the first or the last time of their bucket."""

    backlog_records: int | None = None
    """So many in one fetch are a backlog, in which ingestion reads on while what it wrote is under
    way; None: as for real, which is more than there are.
    """
    source_idle_ms: int | None = None
    """A source that is silent as a whole for so long goes on by the time."""
    max_ahead_ms: int | None = None
    """Records further in front of the clock are dead letters. More than any clock here is
    wrong by.
    """
    second: OutputOptions | None = None
    """A further output."""
    shards: int = 1
    """Processes of each source."""
    output_shards: int = 1
    """Processes of the output."""
    rush: tuple[int, int, int] = (0, 0, 1)
    """From the first of these buckets on, and before the second, there are up to so many times as
    many rows; counted from the beginning.
    """

    @property
    def streams(self) -> list[str]:
        """Those of all sources."""
        if self.shards == 1:
            return list(self.sources)
        return [f"{name}.{shard}" for name in self.sources for shard in range(self.shards)]

    def partitions_of(self, stream: str) -> list[int]:
        """The input partitions that a stream is made from."""
        _, dot, shard = stream.partition(".")
        every = range(self.source_partitions)
        return [each for each in every if not dot or each % self.shards == int(shard)]

    @property
    def moved(self) -> str:
        """The replica that is moved; empty: none is."""
        return (
            f"{self.stages[self.seed % len(self.stages)].name}.0"
            if self.scenario == "moved"
            else ""
        )

    @property
    def new_node(self) -> str:
        """Where it may be moved."""
        return NEW_NODE

    @property
    def federation(self) -> Federation | None:
        """Who may run stages of the pipeline beside its owner; None: nobody."""
        return None

    @property
    def is_honest(self) -> bool:
        """Nobody does what it must not."""
        return True

    @property
    def traders(self) -> tuple[str, ...]:
        """Participants with an agent and a contract broker."""
        return ()

    @property
    def auditor(self) -> str:
        """Who computes samples of a stage that is sold again; empty: nobody."""
        return ""

    @property
    def spoils(self) -> str:
        """A stage of which some buckets may be wrong; empty: none."""
        return ""

    @property
    def isolated(self) -> str:
        """The process of a passive stage that reaches nobody's disk; empty: none."""
        stages = [stage for stage in self.stages if stage.ha == "passive" and stage.replicas > 2]
        return f"{stages[0].name}.1" if stages and self.seed % 2 else ""

    @property
    def last_stage(self) -> str:
        """The stream that is delivered."""
        return self.stages[-1].name if self.stages else self.sources[0]

    @property
    def outputs(self) -> tuple[OutputOptions, ...]:
        """All of them."""
        first = OutputOptions(
            OUTPUT,
            self.last_stage,
            self.output_partitions,
            self.is_live,
            self.is_upsert,
            self.output_shards,
        )
        return (first,) if self.second is None else (first, self.second)

    def made_from(self, stream: str) -> set[str]:
        """The streams that the rows of ``stream`` are made from, itself not among them."""
        found: set[str] = set()
        for stage in reversed(self.stages):
            if stage.name == stream or stage.name in found:
                found.update(stage.reads)
        return found


def draw(seed: int, *, stages_max: int = 2) -> Options:
    """The options of a seed."""
    drawn = _draw(seed, stages_max=stages_max)
    scenario = scenarios.of(seed) if stages_max else ""
    drawn = replace(
        drawn,
        edge_percent=random.Random(f"{seed}/edges").choice((0, 0, 60)),
        backlog_records=random.Random(f"{seed}/backlog").choice((None, 1, 2)),
    )
    shaped = _deep_join if scenario == "deep join" else _shaped
    drawn = (
        shaped(replace(drawn, scenario=scenario))
        if scenario
        else _output_sharded(_sharded(_idling(_grown(drawn))))
    )
    pace_ms = random.Random(f"{seed}/pace").choice((0, 0, 400, 1_000))
    drawn = replace(drawn, stages=tuple(replace(stage, pace_ms=pace_ms) for stage in drawn.stages))
    room = random.Random(f"{seed}/output")
    return replace(drawn, output_bytes_max=room.randint(71, 78)) if room.random() < 0.12 else drawn


def _idling(options: Options) -> Options:
    """The same, in some seeds with a source that may be silent as a whole, or with records
    far in front of the clock.
    """
    rng = random.Random(f"{options.seed}/idling")
    if rng.random() < 0.15:
        options = replace(options, source_idle_ms=rng.choice((600, 1_500)))
    return (
        replace(options, max_ahead_ms=400_000, hostile_percent=10)
        if rng.random() < 0.15
        else options
    )


def _grown(options: Options) -> Options:
    """The same, in some seeds with a partition that comes later. What it brings gets other
    times, and a source's own rows have a time beside event time.
    """
    rng = random.Random(f"{options.seed}/grown")
    if not options.stages or options.source_partitions == 1 or rng.random() >= 0.15:
        return options
    return replace(options, grown_ms=rng.randint(500, options.buckets * options.bucket_ms))


def _sharded(options: Options) -> Options:
    """The same, in some seeds with sources of two or three processes. What a shard leaves out
    depends on what the others read, which no checker follows: nothing is left out.
    """
    rng = random.Random(f"{options.seed}/shards")
    if not options.stages or rng.random() >= 0.25:
        return options
    shards = rng.choice((2, 2, 3))
    return replace(
        options,
        shards=shards,
        source_partitions=shards + rng.choice((0, 1) if options.grown_ms is None else (1,)),
        idle_ms=None,
        source_idle_ms=None,
    )


def _output_sharded(options: Options) -> Options:
    """The same, in some seeds with two or three processes that deliver."""
    rng = random.Random(f"{options.seed}/output shards")
    if rng.random() >= 0.2:
        return options
    shards = rng.choice((2, 2, 3))
    return replace(options, output_shards=shards, output_partitions=shards + rng.choice((0, 1, 2)))


def _draw(seed: int, *, stages_max: int) -> Options:
    rng = random.Random(f"{seed}/options")
    stage_count = rng.choice((0, 1, 1, 1, 2)) if stages_max else 0
    stage_count = min(stage_count, stages_max)
    sources = ("a", "b")[: rng.choice((1, 1, 2)) if stage_count else 1]
    stages: list[StageOptions] = []
    for number in range(stage_count):
        stages.append(
            StageOptions(
                name=f"s{number}",
                reads=(stages[-1].name,) if stages else sources,
                operator=_operator(seed, number, rng.choice(("map", "sum", "both"))),
                replicas=rng.choice((1, 2, 2, 3)) if stage_count == 1 else rng.choice((1, 1, 2)),
                is_batch_safe=rng.random() < 0.7,
                policy=rng.choice(("process", "process", "process", "delay", "suspend")),
            )
        )
    # Where every bucket has a batch of its own it must be wider than a batch of branch and
    # successor takes (``anabranch check`` says so).
    bucket_ms = rng.choice(
        (100, 200, 250) if all(stage.is_batch_safe for stage in stages) else (250, 300)
    )
    buckets = rng.randint(8, 24)
    return Options(
        seed=seed,
        sources=sources,
        source_partitions=rng.choice((1, 2, 2)),
        partitions=rng.choice((1, 2)),
        output_partitions=rng.choice((1, 2, 3)),
        bucket_ms=bucket_ms,
        max_delay_ms=rng.choice((1_600, 2_500)),
        buckets=buckets,
        rows_max=rng.choice((1, 2, 4)),
        out_of_orderness_ms=rng.choice((0, 50, 150)),
        hostile_percent=rng.choice((0, 0, 5)),
        late="reassign"
        if rng.random() < 0.3 and stages
        else "dead_letter",  # a source's own rows have a time beside event time, which orders them
        idle_ms=rng.choice((None, None, 600, 1_500)),
        stages=tuple(stages),
        is_live=bool(stages) and rng.random() < 0.8,
        is_upsert=rng.random() < 0.2,
        has_manager=rng.random() < 0.5,
        latency_max_ms=rng.choice((1, 2, 5)),
        heal_ms=buckets * bucket_ms + rng.choice((1_500, 3_000, 5_000)),
        trim_every_ms=rng.choice((300, 300, 10_000)),
        snapshot_every=random.Random(f"{seed}/log_snapshots").choice((10_000, 10, 25, 60)),
        seen_wait_ms=rng.choice((10_000, 1_000, 100)),
    )


def _shaped(options: Options) -> Options:
    """The same for a scenario: with the stages that it needs, and with time for it."""
    rng = random.Random(f"{options.seed}/shape")
    options = _SHAPES.get(options.scenario, _long_enough_to_fail)(options, rng)
    if options.scenario == "branch fails" and rng.random() < 0.4:
        stages = tuple(replace(stage, operator="later") for stage in options.stages)
        options = replace(options, stages=stages, inherited_parts_max=0)
    room = random.Random(f"{options.seed}/room")
    if (
        options.scenario != "never back" and room.random() < 0.15
    ):  # where it is never back, all of the others is to be shown
        options = replace(options, input_parts_max=room.randint(3, 12))
    bucket_ms = rng.choice((250, 300))
    return replace(
        options,
        bucket_ms=bucket_ms,
        heal_ms=options.buckets * bucket_ms + rng.choice((1_500, 3_000)),
    )


def _long_chain(options: Options, rng: random.Random) -> Options:
    stages = _chain(
        options,
        rng,
        rng.choice((2, 3, 3)),
        (1, 2, 3, 3),
        ("process", "process", "process", "delay", "suspend"),
    )
    return replace(
        options,
        stages=stages,
        max_delay_ms=rng.choice((3_000, 4_000)),
        buckets=rng.randint(6, 12),
    )


def _with_a_peer(options: Options, rng: random.Random) -> Options:
    stages = _chain(options, rng, 1, (2, 3), ("process",))
    return replace(options, stages=stages, buckets=rng.randint(12, 20))


def _small_transactions(options: Options, rng: random.Random) -> Options:
    return replace(
        options,
        stages=_chain(options, rng, 1, (1, 2), ("process",)),
        is_live=False,
        output_partitions=3,
        run_bytes_max=100,
        rows_max=4,
    )


def _three_replicas(options: Options, rng: random.Random) -> Options:
    """Nothing is tentative: what a wrong branch shows nobody can know to be wrong."""
    return replace(
        options,
        stages=_chain(options, rng, 1, (3,), ("suspend",)),
        has_manager=True,
        buckets=rng.randint(14, 22),
        rows_max=4,
        snapshot_every=10_000,  # who begins at a log snapshot compares what is closed after it
    )


def _standing_by(options: Options, rng: random.Random) -> Options:
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (2, 2, 3), ("process",))
    first = rng.randrange(len(stages))
    return replace(
        options,
        stages=tuple(
            replace(stage, ha="passive" if number == first or rng.random() < 0.5 else "active")
            for number, stage in enumerate(stages)
        ),
        has_manager=rng.random() < 0.8,
        buckets=rng.randint(16, 24),
    )


def _few_stages(options: Options, rng: random.Random) -> Options:
    replicas = (2, 2, 3) if options.scenario == "stage down" else (1, 1, 2)
    stages = _chain(options, rng, rng.choice((1, 1, 2)), replicas, ("process",))
    return replace(options, stages=stages, buckets=rng.randint(12, 20))


def _far_in_front(options: Options, rng: random.Random) -> Options:
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (1, 2), ("process",))
    return replace(
        options,
        stages=stages,
        source_partitions=2,
        rows_max=4,
        idle_ms=None,
        max_delay_ms=1_600 + 600 * len(stages),
        ahead=(rng.randint(2, 8), rng.randint(16, 40)),
        buckets=rng.randint(20, 24),
        hostile_percent=0,
        late="dead_letter",
    )


def _quiet_between(options: Options, rng: random.Random) -> Options:
    stages = tuple(
        replace(stage, is_batch_safe=False)
        for stage in _chain(options, rng, rng.choice((1, 1, 2)), (1, 2), ("process",))
    )
    if rng.random() < 0.5:
        stages = (replace(stages[0], operator="timed"), *stages[1:])
    begin, buckets = rng.randint(2, 6), rng.randint(18, 24)
    return replace(
        options,
        stages=stages,
        buckets=buckets,
        quiet=(begin, begin + rng.randint(4, 11)),
        rows_max=4,
        snapshot_every=10_000,  # many records: a reader of few would be overtaken
    )


def _rows_in_far_buckets(options: Options, rng: random.Random) -> Options:
    first, *others = _chain(options, rng, rng.choice((1, 2, 2)), (1, 1, 2), ("process",))
    first = (
        replace(first, operator="far")
        if rng.random() < 0.7
        else replace(first, operator="both", is_batch_safe=True)
    )
    buckets, remembered = rng.randint(16, 24), rng.randint(3, 8)
    parts_max = rng.choice((None, None, None, 1, 2, 3))
    if parts_max is not None:
        remembered += buckets // parts_max  # RP5: the record before a batch's first piece is, too
    return replace(
        options,
        stages=(first, *others),
        buckets=buckets,
        rows_max=4,
        chain_records_max=remembered,
        record_parts_max=parts_max,
    )


def _long_enough_to_fail(options: Options, rng: random.Random) -> Options:
    """One stage, and inputs of which one can go on while another is silent."""
    replicas = (1, 1, 2) if options.scenario == "second failure" else (1, 2)
    return replace(
        options,
        stages=_chain(options, rng, 1, replicas, ("process", "process", "delay")),
        is_live=True,
        max_delay_ms=1_600,
        buckets=rng.randint(20, 26),
        idle_ms=None,
        # What is tentative stays so where an input is never back.
        is_upsert=options.is_upsert and options.scenario != "never back",
        source_partitions=2 if len(options.sources) == 1 else options.source_partitions,
    )


def _nothing_trimmed(options: Options, rng: random.Random) -> Options:
    """All input is there, for those who make blocks again."""
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (1, 1, 2), ("process", "suspend"))
    return replace(options, stages=stages, has_manager=False, buckets=rng.randint(12, 20))


def _without_backups(options: Options, rng: random.Random) -> Options:
    ha: HaMode = "amnesia" if options.scenario == "amnesia" else "upstream_backup"
    policies: tuple[Policy, ...] = ("process", "process", "suspend")
    stages = list(_chain(options, rng, rng.choice((1, 1, 2)), (1, 1, 2), policies))
    number = rng.randrange(len(stages))
    stages[number] = replace(stages[number], ha=ha, replicas=1)
    return replace(
        options,
        stages=tuple(stages),
        max_delay_ms=2_500,
        has_manager=rng.random() < 0.8,
        buckets=rng.randint(14, 22),
    )


def _two_outputs(options: Options, rng: random.Random) -> Options:
    """Of one stage, of one and the one before, of a stage and a source, or of two stages that have
    nothing to do with each other.
    """
    kind = rng.choice(("same", "before", "source", "apart", "apart"))
    stages = _chain(
        options,
        rng,
        2 if kind in ("before", "apart") else rng.choice((1, 2)),
        (1, 2),
        ("process", "process", "process", "delay", "suspend"),
    )
    options = replace(options, max_delay_ms=rng.choice((2_500, 3_000)), buckets=rng.randint(10, 18))
    if kind == "apart":
        options = replace(options, sources=("a", "b"))
        stages = (replace(stages[0], reads=("a",)), replace(stages[1], reads=("b",)))
    if kind == "source":  # its own rows have a time beside event time, which orders them
        options = replace(options, late="dead_letter")
    stream = {"same": stages[-1].name, "source": options.sources[-1]}.get(kind, stages[0].name)
    is_live = kind != "source" and rng.random() < 0.7
    second = OutputOptions(SECOND, stream, rng.choice((1, 2)), is_live, rng.random() < 0.2)
    return replace(options, stages=stages, is_live=rng.random() < 0.8, second=second)


def _changes_its_function(options: Options, rng: random.Random) -> Options:
    """Nothing is tentative: what a branch shows may be of either version."""
    return replace(
        options,
        stages=_chain(options, rng, 1, (1, 2, 2, 3), ("suspend",)),
        buckets=rng.randint(14, 22),
        snapshot_every=10_000,  # whoever begins at a log snapshot has not seen who closed what
    )


def _soon_trimmed(options: Options, rng: random.Random) -> Options:
    """One stage with an output, or two: the second has an input of its own that may fail alone."""
    first, *others = _chain(options, rng, rng.choice((1, 2)), (1, 2, 2), ("process",))
    if others:
        first, others = replace(first, reads=("a",)), [replace(others[0], reads=("s0", "b"))]
    return replace(
        options,
        sources=("a", "b") if others else options.sources,
        stages=(first, *others),
        is_live=True,
        has_manager=True,
        max_delay_ms=2_500 if others else 1_600,
        buckets=rng.randint(32, 40),
        idle_ms=None,
        trim_every_ms=300,
        snapshot_every=10,
    )


def _slowly_corrected(options: Options, rng: random.Random) -> Options:
    """One stage whose replicas take long for a batch, and so begin theirs at different times."""
    stages = _chain(options, rng, 1, (2, 2, 3), ("process",))
    return replace(
        options,
        stages=tuple(replace(each, batch_ms=600, is_batch_safe=True) for each in stages),
        is_live=True,
        is_upsert=False,
        max_delay_ms=4_000,
        buckets=rng.randint(36, 42),
        idle_ms=None,
        out_of_orderness_ms=0,
        source_partitions=2,
        rec_done_wait_ms=300,
    )


def _added_late(options: Options, rng: random.Random) -> Options:
    """One stage, of which nothing is tentative."""
    return replace(
        options,
        stages=_chain(options, rng, 1, (1, 2, 2), ("suspend",)),
        buckets=rng.randint(14, 22),
    )


_SHAPES: Final[dict[str, Callable[[Options, random.Random], Options]]] = {
    "chain": _long_chain,
    "blocks deleted": _with_a_peer,
    "recovery twice": _small_transactions,
    "outvoted": _three_replicas,
    "stage down": _few_stages,
    "moved": _few_stages,
    "passive": _standing_by,
    "ahead": _far_in_front,
    "quiet gap": _quiet_between,
    "far rows": _rows_in_far_buckets,
    "two outputs": _two_outputs,
    "upstream backup": _without_backups,
    "amnesia": _without_backups,
    "asked for": _nothing_trimmed,
    "upgraded": _changes_its_function,
    "end trimmed": _soon_trimmed,
    "slow corrections": _slowly_corrected,
    "added late": _added_late,
}


def _deep_join(options: Options) -> Options:
    """The same for the scenario of this name. Its slow stages wait for what they miss; only
    the one that joins may go on without.
    """
    rng = random.Random(f"{options.seed}/shape")
    batch_ms = rng.randint(300, 400)
    hops = [
        StageOptions(f"s{number}", (f"s{number - 1}",), "map", 1, True, "suspend", batch_ms)
        for number in range(rng.choice((3, 4)))
    ]
    hops[0] = replace(hops[0], reads=options.sources)
    policy: Policy = rng.choice(("process", "process", "delay"))
    operator: Operator = rng.choice(("map", "sum", "both"))
    join = StageOptions(
        f"s{len(hops)}",
        (*options.sources, hops[-1].name),
        operator,
        rng.choice((1, 2)),
        True,
        policy,
    )
    options = replace(
        options,
        stages=(*hops, join),
        is_live=True,
        idle_ms=None,
        hostile_percent=0,
        out_of_orderness_ms=0,
    )
    buckets, bucket_ms = rng.randint(24, 30), rng.choice((250, 300))
    return replace(
        options,
        max_delay_ms=rng.choice((1_600, 2_000)),
        buckets=buckets,
        bucket_ms=bucket_ms,
        heal_ms=buckets * bucket_ms + 3_000,
    )


def _chain(
    options: Options,
    rng: random.Random,
    count: int,
    replicas: tuple[int, ...],
    policies: tuple[Policy, ...],
) -> tuple[StageOptions, ...]:
    stages: list[StageOptions] = []
    for number in range(count):
        operator = _operator(options.seed, number, rng.choice(("map", "sum", "both")))
        reads = (stages[-1].name,) if stages else options.sources
        stages.append(
            StageOptions(
                f"s{number}",
                reads,
                operator,
                rng.choice(replicas),
                rng.random() < 0.7,
                rng.choice(policies),
            )
        )
    return tuple(stages)


def _operator(seed: int, number: int, otherwise: Operator) -> Operator:
    return "later" if random.Random(f"{seed}/later/{number}").random() < 0.15 else otherwise
