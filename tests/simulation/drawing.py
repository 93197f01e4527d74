"""Draws the options of a seed: of chance alone, or of a scenario."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from anabranch.pipeline.model import HaMode
from simulation import scenarios
from simulation.options import (
    SECOND,
    Operator,
    Options,
    OutputOptions,
    Policy,
    StageOptions,
)


def draw(seed: int, *, stages_max: int = 2) -> Options:
    """Draw the options of a seed."""
    drawn = by_chance(seed, stages_max=stages_max)
    scenario = scenarios.of(seed) if stages_max else ""
    drawn = replace(
        drawn,
        edge_percent=random.Random(f"{seed}/edges").choice((0, 0, 60)),
        backlog_records=random.Random(f"{seed}/backlog").choice((None, 1, 2)),
        has_earlier_life=random.Random(f"{seed}/earlier life").random() < 0.15,
    )
    shaped = _deep_join if scenario == "deep join" else _shaped
    drawn = (
        shaped(replace(drawn, scenario=scenario))
        if scenario
        else _output_sharded(_sharded(_idling(_grown(drawn))))
    )
    if drawn.stages and scenario in _STORED:
        chance = 0.5 if scenario == "moved" else 0.12
        drawn = replace(drawn, has_store=random.Random(f"{seed}/store").random() < chance)
    pace_ms = random.Random(f"{seed}/pace").choice((0, 0, 400, 1_000))
    twice = random.Random(f"{seed}/twice").choice((0, 0, 0, 1, 2))
    is_wide = random.Random(f"{seed}/columns").random() < 0.12 and not drawn.has_notes
    is_wide &= drawn.scenario not in ("new column", scenarios.READ_WHILE_SHED)
    stages = tuple(
        replace(
            stage,
            pace_ms=0 if stage.bucket_percent else pace_ms,
            twice=twice,
            has_more_columns=is_wide,
        )
        for stage in drawn.stages
    )
    drawn = replace(drawn, stages=stages)
    room = random.Random(f"{seed}/output")
    if drawn.has_notes:
        is_bounded = room.random() < 0.4
        return replace(drawn, output_bytes_max=room.randint(84, 92)) if is_bounded else drawn
    if drawn.has_two_lives or is_wide:
        return drawn  # in another life an origin may be longer, and wide records are too large
    if drawn.scenario == scenarios.READ_WHILE_SHED:
        return drawn  # a transaction of one result takes longer than its stages do
    chance = 0.4 if drawn.scenario == "output resharded" else 0.12
    is_bounded = room.random() < chance
    return replace(drawn, output_bytes_max=room.randint(71, 78)) if is_bounded else drawn


_STORED: Final = (
    "",
    "chain",
    "stage down",
    "moved",
    "passive",
    "two outputs",
    "made anew",
    "outlived",
)
"""Scenarios whose replicas may lose their disks at any time, where there is a store."""


def _idling(options: Options) -> Options:
    """Add, in some seeds, a source that may be idle as a whole, or records far ahead of the
    clock.
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
    """Add, in some seeds, a partition that comes later. What it brings gets other times, and a
    source's own rows have a time beside event time.
    """
    rng = random.Random(f"{options.seed}/grown")
    if not options.stages or options.source_partitions == 1 or rng.random() >= 0.15:
        return options
    return replace(options, grown_ms=rng.randint(500, options.buckets * options.bucket_ms))


def _sharded(options: Options) -> Options:
    """Give sources two or three processes, in some seeds. What a shard leaves out depends on what
    the others read, which no checker follows: nothing is left out.
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
    """Let two or three processes deliver, in some seeds."""
    rng = random.Random(f"{options.seed}/output shards")
    if rng.random() >= 0.2:
        return options
    shards = rng.choice((2, 2, 3))
    return replace(options, output_shards=shards, output_partitions=shards + rng.choice((0, 1, 2)))


def by_chance(seed: int, *, stages_max: int) -> Options:
    """Draw the options that every seed begins with."""
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
    """Adapt the options to a scenario: with the stages that it needs, and with enough time."""
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
        buckets=rng.randint(16, 24) + (24 if scenarios.goes_back(options.seed) else 0),
    )


def _few_stages(options: Options, rng: random.Random) -> Options:
    replicas = (2, 2, 3) if options.scenario == "stage down" else (1, 1, 2)
    stages = _chain(options, rng, rng.choice((1, 1, 2)), replicas, ("process",))
    return replace(options, stages=stages, buckets=rng.randint(12, 20))


def _few_stages_that_may_be_busy(options: Options, rng: random.Random) -> Options:
    options = replace(_few_stages(options, rng), has_manager=True, has_store=rng.random() < 0.5)
    busy_ms = rng.choice((0, 150, 250))
    cold_ms = random.Random(f"{options.seed}/cold").choice((0, 0, 1_500, 2_500))
    stages = tuple(
        replace(stage, function_ms=busy_ms, cold_ms=cold_ms, replicas=1) for stage in options.stages
    )
    return replace(options, stages=stages, buckets=rng.randint(20, 32))


_PARALLEL_CHANCE: Final = 0.6


def _split_while_it_runs(options: Options, rng: random.Random) -> Options:
    """Two stages: the shard of the first one may be split."""
    policies: tuple[Policy, ...] = ("process", "process", "suspend")
    shard, reader = _chain(options, rng, 2, (1, 1, 2), policies)
    kind = rng.choices(("by keys", "mixed", "slow"), (70, 20, 10))[0]
    by_itself = rng.random() < 0.35
    operator: Operator = "mixed" if kind == "mixed" else rng.choice(("map", "sum", "both", "later"))
    shard = replace(
        shard,
        operator=operator,
        may_split=True,
        replicas=1 if by_itself else shard.replicas,
        function_ms=rng.choice((150, 250)) if by_itself else 0,
        half_ms=rng.choice((150, 250, 400)) if kind == "slow" else 0,
        cold_ms=random.Random(f"{options.seed}/cold").choice((0, 0, 300, 700)),
    )
    if kind == "slow":
        # So that the halves fall behind, and reach the shard while it waits for its input.
        shard = replace(shard, is_batch_safe=False, policy="process")
    return replace(
        options,
        stages=(shard, reader),
        splits_by_itself=by_itself,
        has_manager=by_itself or rng.random() < 0.8,
        has_store=rng.random() < 0.5,
        trim_every_ms=300,
        max_delay_ms=rng.choice((2_500, 4_000)),
        rows_max=4,
        buckets=rng.randint(30, 44),
        recovers_in_parallel=by_itself
        and random.Random(f"{options.seed}/parallel").random() < _PARALLEL_CHANCE,
    )


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


def _input_is_deleted(options: Options, rng: random.Random) -> Options:
    """Every partition is known from the beginning, and everything else is as chance has it."""
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (1, 1, 2), ("process", "suspend"))
    return replace(options, stages=stages, grown_ms=None, buckets=rng.randint(12, 20))


def _dated_by_leaders(options: Options, rng: random.Random) -> Options:
    """Event time is the arrival. A limit in front of the clock is short, so that the run comes to
    what is dated by it.
    """
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (1, 1, 2), ("process", "suspend"))
    return replace(
        options,
        stages=stages,
        is_arrival=True,
        max_ahead_ms=rng.choice((None, 5_000)),
        grown_ms=None,
        hostile_percent=0,
        late="dead_letter",
        buckets=rng.randint(12, 20),
    )


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
    """Add an output: of the same stage, of the one before, of a source's stage, or of an unrelated
    stage.
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
    stages = _chain(options, rng, 1, (1, 2, 2, 3), ("suspend",))
    if options.seed % 2:
        # Its windows are of several buckets, so that a batch ends within one. A replica whose state
        # is deleted begins at the beginning, so nothing may be trimmed.
        stages = tuple(replace(each, operator="sum", version_is_in_state=True) for each in stages)
        options = replace(options, has_manager=False)
    return replace(
        options,
        stages=stages,
        buckets=rng.randint(14, 22),
        snapshot_every=10_000,  # whoever begins at a log snapshot has not seen who closed what
    )


def _made_anew(options: Options, rng: random.Random) -> Options:
    """One stage or two, with time for a second life. Upsert views are common: only they have keys
    that a former life leaves.
    """
    stages = _chain(options, rng, rng.choice((1, 1, 2)), (1, 2, 2), ("process", "suspend"))
    return replace(
        options,
        stages=stages,
        is_live=True,
        is_upsert=rng.random() < 0.5,
        has_manager=rng.random() < 0.75,
        trim_every_ms=300,
        max_delay_ms=2_500,
        buckets=rng.randint(14, 22),
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


def _small_buffers(options: Options, rng: random.Random) -> Options:
    """One stage, and sources with small rooms for what it has not read."""
    return replace(
        options,
        stages=_chain(options, rng, 1, (1, 2, 2), ("process", "process", "suspend")),
        has_manager=True,
        trim_every_ms=300,
        kept_max=rng.randint(14, 28),
        rows_max=4,
        buckets=rng.randint(20, 30),
    )


def _other_numbers(options: Options, rng: random.Random) -> Options:
    """Let sources change their number of shards, from one to three, with one or two stages behind
    them. Nothing is left out, as with shards that stay.
    """
    numbers = [rng.choice((1, 1, 2, 3))]
    for _ in range(rng.choice((1, 2, 2))):
        numbers.append(rng.choice([each for each in (1, 2, 3) if each != numbers[-1]]))
    shared = rng.random() < 0.2
    options = replace(
        options,
        sources=options.sources if shared else options.sources[:1],
        stages=(),
    )
    is_grown = rng.random() < 0.2
    return replace(
        options,
        stages=_chain(options, rng, rng.choice((1, 1, 2)), (1, 2), ("process", "process", "delay")),
        shards=numbers[0],
        changes=tuple(numbers[1:]),
        source_partitions=max(numbers) + (1 if is_grown else rng.choice((0, 1))),
        grown_ms=rng.randint(500, 2_500) if is_grown else None,
        is_live=rng.random() < 0.8,
        idle_ms=None,
        source_idle_ms=None,
        buckets=rng.randint(14, 28),
        rows_max=rng.choice((2, 4)),
    )


def _other_output_numbers(options: Options, rng: random.Random) -> Options:
    """Let an output change its number of shards, from one to three."""
    numbers = [rng.choice((1, 1, 2, 3))]
    numbers += rng.choices((1, 2, 3), k=rng.choice((1, 1, 2, 3)))
    return replace(
        options,
        stages=_chain(options, rng, 1, (1, 2), ("process", "process", "delay")),
        output_shards=numbers[0],
        output_changes=tuple(numbers[1:]),
        output_partitions=max(numbers) + rng.choice((0, 1, 2)),
        is_live=rng.random() < 0.6,
        run_bytes_max=rng.choice((100, 300, None)),
        buckets=rng.randint(14, 28),
        rows_max=rng.choice((2, 4)),
        beside_live_rows_max=random.Random(f"{options.seed}/live").choice((None, None, 2, 5)),
    )


_COSTLY_BUCKETS: Final = 0.15
"""Share of the seeds with one overloaded stage in which buckets take most of the core, few as the
kept rows may be. On a node that runs one task at a time the branch is late then, whatever goes
first (docs/concepts.md, What the bound does not cover). Several replicas, which would correct one
after the other, or a pace would make the corrections take longer than a seed may.
"""
_AFTER_COSTLY_BUCKETS: Final = 80
"""Number of buckets after the rush of such a seed: its branch and the correction both need the core
for so long that the branch is late unless it goes first.
"""
_APART: Final = 0.2
"""Share of the seeds with one overloaded stage in which each bucket has a batch of its own, and the
query of a branch fails: one batch would pass all that the branch had run.
"""
_KEYED: Final = 0.4
"""Share of the seeds with an overload whose stage leaves out whole keys."""
_FEW_KEYS: Final = (0, 0, 3, 20)
"""Numbers of keys of such a seed, each as likely; 0: hundreds."""
_HOT_PERCENTS: Final = (0, 0, 40)
"""Percentages of the rows of such a seed that have one and the same key, each as likely."""


def _overloaded(options: Options, rng: random.Random) -> Options:
    """One stage whose rows cost time, and a rush of several times what it can process; in some
    seeds there is no rush, and the stage is busy half of the time.
    """
    options = replace(options, sources=options.sources[:1])
    (stage,) = _chain(options, rng, 1, (1, 1, 2), ("process",))
    stage = replace(stage, is_batch_safe=True, row_ms=rng.choice((20, 25)), sheds=True)
    begin, times = rng.randint(16, 24), rng.choice((1, 4, 6))
    end = begin + rng.randint(16, 32)
    drawn = replace(
        options,
        stages=(stage,),
        source_partitions=2,
        rows_max=4,
        rush=(begin, end, times),
        buckets=end + rng.randint(8, 16),
        max_delay_ms=rng.choice((3_000, 4_000)),
        out_of_orderness_ms=rng.choice((0, 50)),
        late="dead_letter",
        hostile_percent=0,
        idle_ms=None,
        is_live=True,
        grown_ms=None,
    )
    # Drawn last and apart, so that a seed without a key, or with two tasks, is what it was.
    shed_key = ("key",) if rng.random() < _KEYED else ()
    cores = random.Random(f"{options.seed}/cores").choice((1, 2))
    stage = replace(stage, shed_key=shed_key, cores=cores)
    is_costly = random.Random(f"{options.seed}/buckets").random() < _COSTLY_BUCKETS
    if is_costly and options.scenario == "overload":
        stage = replace(stage, row_ms=10, bucket_percent=65, cores=2, replicas=1)
        drawn = replace(drawn, rush=(begin, end, 6), buckets=end + _AFTER_COSTLY_BUCKETS)
    elif (
        random.Random(f"{options.seed}/apart").random() < _APART and options.scenario == "overload"
    ):
        stage = replace(stage, is_batch_safe=False)
    return _with_keys(replace(drawn, stages=(stage,)))


def _with_keys(options: Options) -> Options:
    """Draw how many keys the rows have, and whether one of them has many rows, if a stage leaves
    out whole keys.
    """
    if not any(stage.shed_key for stage in options.stages):
        return options
    rng = random.Random(f"{options.seed}/keys")
    few_keys, hot_percent = rng.choice(_FEW_KEYS), rng.choice(_HOT_PERCENTS)
    return replace(options, has_many_keys=True, few_keys=few_keys, hot_percent=hot_percent)


def _overloaded_chain(options: Options, rng: random.Random) -> Options:
    """As ``_overloaded``, with a stage behind it, which in half of the seeds is slower."""
    drawn = _overloaded(options, rng)
    (first,) = drawn.stages
    # With the results of "both" the second stage would have too much to do before the rush.
    operator: Operator = "map" if first.operator == "both" else first.operator
    first = replace(first, operator=operator, replicas=1)
    _, second = _chain(drawn, rng, 2, (1, 1, 2), ("process",))
    is_slower = rng.random() < 0.5
    second = replace(
        second,
        is_batch_safe=True,
        sheds=is_slower,
        row_ms=first.row_ms * 3 // 2 if is_slower else 0,
        shed_key=("key",) if is_slower and rng.random() < _KEYED else (),
    )
    return _with_keys(
        replace(drawn, stages=(first, second), max_delay_ms=rng.choice((5_000, 6_000)))
    )


def _gets_a_column(options: Options, rng: random.Random) -> Options:
    """Two stages, of which nothing is tentative: what a branch shows may be of either version."""
    first, second = _chain(options, rng, 2, (1, 1, 2), ("suspend",))
    return replace(
        options,
        stages=(replace(first, adds_column=True), replace(second, uses_column=True)),
        max_delay_ms=3_000,
        buckets=rng.randint(18, 26),
        snapshot_every=10_000,  # whoever begins at a log snapshot has not seen who closed what
    )


def _delta(options: Options, rng: random.Random) -> Options:
    """Five stages over four sources. Each source is read by at least one stage, each stage by
    another, and some join a source with a stream that has gone through several stages.
    """
    sources = ("a", "b", "c", "d")
    policies: tuple[Policy, ...] = ("process", "process", "process", "delay")
    chain = _chain(replace(options, sources=sources), rng, 5, (1, 1, 1, 2), policies)
    near, far = rng.choice(sources[:2]), rng.choice(sources[2:])
    reads = (
        ("a", "b"),
        ("c", "d"),
        (rng.choice(("s0", "s1")), near),
        ("s0", "s1", "s2"),
        ("s3", far),
    )
    return replace(
        options,
        sources=sources,
        source_partitions=1,
        stages=tuple(replace(stage, reads=each) for stage, each in zip(chain, reads, strict=True)),
        is_live=True,
        max_delay_ms=rng.choice((4_000, 5_000)),
        rows_max=2,
        buckets=rng.randint(8, 12),
    )


def _too_large(options: Options, rng: random.Random) -> Options:
    """One or two stages, of which one makes rows that are too large: the last one mostly, whose
    notices are delivered. Windows of windows could have one time, id and key, and then nothing but
    their hashes would order their notices.
    """
    policies: tuple[Policy, ...] = ("process", "process", "process", "delay", "suspend")
    stages = list(_chain(options, rng, rng.choice((1, 1, 2)), (1, 2, 3), policies))
    if len(stages) > 1:
        stages[0] = replace(stages[0], operator="map")
    number = len(stages) - 1 if rng.random() < 0.75 else 0
    stages[number] = replace(stages[number], has_notes=True)
    return replace(
        options,
        stages=tuple(stages),
        is_live=rng.random() < 0.8,
        max_delay_ms=rng.choice((2_500, 3_000)),
        run_bytes_max=rng.choice((None, 100, 300)),
        output_shards=rng.choice((1, 1, 2)),
        output_partitions=rng.choice((2, 3)),
        rows_max=4,
        buckets=rng.randint(10, 18),
    )


def _own_bounds(options: Options, rng: random.Random) -> Options:
    """Two outputs, one of which is patient: of one stage, or of the stages of a chain."""
    stages = _chain(options, rng, rng.choice((1, 2)), (1, 1, 2), ("process", "process", "delay"))
    hasty_ms, patient_ms = 1_600 + 600 * (len(stages) - 1), rng.choice((8_000, 10_000))
    own_ms, second_ms = rng.choice(((patient_ms, None), (None, patient_ms)))
    return replace(
        options,
        stages=stages,
        max_delay_ms=hasty_ms,
        own_max_delay_ms=own_ms,
        second=OutputOptions(
            SECOND, stages[0].name, rng.choice((1, 2)), True, False, own_max_delay_ms=second_ms
        ),
        is_live=True,
        is_upsert=False,
        source_partitions=2,
        hostile_percent=0,
        idle_ms=None,
        grown_ms=None,
        rows_max=4,
        buckets=rng.randint(40, 52),
    )


_SHAPES: Final[dict[str, Callable[[Options, random.Random], Options]]] = {
    "chain": _long_chain,
    "blocks deleted": _with_a_peer,
    "recovery twice": _small_transactions,
    "outvoted": _three_replicas,
    "stage down": _few_stages,
    "moved": _few_stages,
    scenarios.SCALED: _few_stages_that_may_be_busy,
    scenarios.SPLIT: _split_while_it_runs,
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
    "pushed back": _small_buffers,
    "resharded": _other_numbers,
    "output resharded": _other_output_numbers,
    "input gone": _input_is_deleted,
    "made anew": _made_anew,
    "overload": _overloaded,
    "input recreated": _input_is_deleted,
    "arrival": _dated_by_leaders,
    "outlived": _made_anew,
    "too large": _too_large,
    "delta": _delta,
    "new column": _gets_a_column,
    "own bounds": _own_bounds,
    scenarios.READ_WHILE_SHED: _overloaded_chain,
}


def _deep_join(options: Options) -> Options:
    """Adapt the options to the scenario of this name. Its slow stages wait for missing input; only
    the joining stage may continue without.
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
