"""Options of one seed: the pipeline and the machine that it runs on. Printed in full when a seed
fails. ``drawing`` draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.pipeline.model import Federation, HaMode
from simulation.scenarios import OVERLOADS, SCALED, SPLIT

Operator = Literal["map", "sum", "both", "later", "far", "timed", "mixed"]
"""Each row; sums of windows; rows at once and their number per bucket; each row a bucket later;
each row at the end of a long window; a timer per key that sets the next one; each row with the
number of all rows of its bucket, whatever their keys. The second, the third and the sixth have
state.
"""

Policy = Literal["process", "delay", "suspend"]

NAME = "sim"
OUTPUT = "out"
SECOND = "second"
"""The other output, where there are two."""
WINDOW_BUCKETS = 2
"""Window of the operator ``sum``, in buckets."""
NEW_NODE = "north.7"
"""Runs nothing until a replica is moved to it."""
THIRD_NODE = "north.8"
"""Another one."""
ON_NEW = ".new"
"""After the name of a replica: the process of the node to which it may be moved."""
ON_THIRD = ".third"
"""The same of a further node."""


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
    """Additional duration of a batch, in ms."""
    function_ms: int = 0
    """Time that the function takes in each batch, in ms: within it the replica counts as busy."""
    cold_ms: int = 0
    """Additional time that it takes in the first batch with rows of a process, in ms; in the second
    one half, in the third one third, ... of COLD_BATCHES (``protocol.stage.load_control``).
    """
    ha: HaMode = "active"
    """Mode of the stage. If it is passive, ``replicas`` are processes of one replica."""
    pace_ms: int = 0
    """See ``BatchRules``."""
    row_ms: int = 0
    """Processor time that each row of a batch takes, in ms. The queries of a process share it."""
    bucket_percent: int = 0
    """Processor time that each bucket with rows takes besides, few as the kept ones may be, in per
    cent of its width.
    """
    cores: int = 2
    """Number of tasks that its node runs at once. The processor is shared whatever it is."""
    sheds: bool = False
    """Whether it may leave out rows while it is overloaded."""
    shed_key: tuple[str, ...] = ()
    """Columns whose equal values it keeps or leaves out together; without columns rows count one by
    one.
    """
    by_checkpoint: bool = False
    """Whether a partner's node begins from its owner's checkpoint."""
    version_is_in_state: bool = False
    """Whether another version adds to the rows of windows within its state, and not behind it: it
    cannot continue from the state of the previous version.
    """
    twice: int = 0
    """Number of the inputs, from the first on, that the function uses twice: it joins each with
    itself, row by row, so results are the same.
    """

    may_split: bool = False
    """Whether its shard may be split into halves (``halves``)."""
    half_ms: int = 0
    """Duration of a batch of a half beyond that of the shard's, in ms."""

    has_more_columns: bool = False
    """Its results have further columns (``more_columns``)."""
    has_notes: bool = False
    """Some of its results are too large for its stream (``notes``)."""
    adds_column: bool = False
    """The second version of its function adds a column to its results (``new_column``)."""
    uses_column: bool = False
    """The second version of its function needs that column of its input."""

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """(name, input) of each source that the engine has, in the order in which it asks them."""
        again = tuple((f"{name} again", name) for name in self.reads[: self.twice])
        return tuple((name, name) for name in self.reads) + again

    @property
    def horizon_buckets(self) -> int:
        """Maximum number of buckets after its own in which a record changes results."""
        return {"sum": WINDOW_BUCKETS, "both": 1, "later": 1}.get(self.operator, 0)


@dataclass(frozen=True)
class OutputOptions:
    """One output: its topics are called as it is, the live one with ``.live`` behind."""

    name: str
    stream: str
    partitions: int
    is_live: bool
    is_upsert: bool
    numbers: tuple[int, ...] = (1,)
    """Numbers of processes, one after the other."""
    own_max_delay_ms: int | None = None
    """Its own ``max_delay``, in ms; None: the pipeline's."""

    @property
    def processes(self) -> list[str]:
        """Processes that deliver at last; the first also writes the live topic."""
        return self.every_process[-self.numbers[-1] :]

    @property
    def every_process(self) -> list[str]:
        """Processes of all numbers."""
        return _members(self.name, self.numbers)

    @property
    def live_topic(self) -> str:
        """Live topic."""
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
    beside_live_rows_max: int | None = None
    """Maximum number of rows in a transaction of a delivery that writes a live topic, too; None:
    the real one, which is more than there are.
    """
    run_bytes_max: int | None = None
    """Maximum size of a transaction of delivery, in bytes; None: the real one."""
    inherited_parts_max: int | None = None
    """Open parts that a branch can begin with; None: as for real."""
    input_parts_max: int | None = None
    """Maximum number of parts of its inputs that a stage holds; None: the real one."""
    kept_max: int | None = None
    """With so many blocks in its topics a source reads nothing more; None: as for real."""
    grown_ms: int | None = None
    """Until then each source has a partition less; its producers find it before ingestion
    does, and send all that they had for it.
    """
    chain_records_max: int | None = None
    """Number of records of a writer's chain that a log state remembers; None: the real one."""
    record_parts_max: int | None = None
    """Maximum number of parts in one boundary record; None: the real one."""
    output_bytes_max: int | None = None
    """Maximum size of a record of the output topic, in bytes; in some seeds so small that results
    with many digits are rejected. None: the real one.
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
    """Percentage of rows with the first or the last time of their bucket."""

    has_store: bool = False
    """There is a store of checkpoints."""
    store_is_hostile: bool = False
    """The store serves other state than was stored in it, too."""
    has_earlier_life: bool = False
    """The topics of outputs hold records of an earlier life, with the ids that this one uses."""
    backlog_records: int | None = None
    """Number of records in a fetch that count as a backlog, in which ingestion reads on while its
    writes are in flight; None: the real one, which is more than there are.
    """
    source_idle_ms: int | None = None
    """A source that is silent as a whole for so long goes on by the time."""
    max_ahead_ms: int | None = None
    """Records further in front of the clock are dead letters. More than any clock here is
    wrong by.
    """
    is_arrival: bool = False
    """Event time is the arrival, by the clocks of the leaders of input partitions."""
    second: OutputOptions | None = None
    """A further output."""
    shards: int = 1
    """Processes of each source, at first."""
    changes: tuple[int, ...] = ()
    """The numbers of processes that each source gets after that, one after the other."""
    output_shards: int = 1
    """Processes of the output, at first."""
    output_changes: tuple[int, ...] = ()
    """The numbers of processes that the output gets after that, one after the other."""
    own_max_delay_ms: int | None = None
    """``max_delay`` of the first output, in ms; None: the pipeline's."""
    rush: tuple[int, int, int] = (0, 0, 1)
    """From the first of these buckets on, and before the second, there are up to so many times as
    many rows; counted from the beginning.
    """
    has_many_keys: bool = False
    """Whether rows have one of hundreds of keys, or of ``few_keys``: with three keys a stage that
    leaves out whole keys has all rows or hardly any.
    """
    few_keys: int = 0
    """Number of keys instead of hundreds; 0: hundreds. A share of few keys may have any number of
    the rows.
    """
    hot_percent: int = 0
    """Percentage of the rows that have one and the same key, in addition to their usual keys."""
    splits_by_itself: bool = False
    """Whether the manager wants the split, since batches fill the time, and no operator does."""
    recovers_in_parallel: bool = False
    """Whether it wants the split, too, when the node of the shard is lost."""

    @property
    def is_scaled(self) -> bool:
        """Whether the manager decides where replicas run."""
        return self.scenario == SCALED or self.splits_by_itself

    @property
    def streams(self) -> list[str]:
        """Streams of all sources."""
        return [stream for name in self.sources for stream in self.streams_of(name)]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of processes of each source, one after the other."""
        return (self.shards, *self.changes)

    @property
    def files(self) -> int:
        """How many files the pipeline has, one after the other."""
        return 1 + max(len(self.changes), len(self.output_changes))

    def streams_of(self, source: str) -> list[str]:
        """Its streams, with all numbers."""
        return _members(source, self.numbers)

    def shard_of(self, stream: str) -> tuple[int, int, int]:
        """(which of the numbers, which shard, of how many) a stream is."""
        *number, shard = (int(each) for each in (stream.partition(".")[2] or "0").split("-"))
        place = number[0] - 1 if number else 0
        return place, shard, self.numbers[place]

    def with_later(self, missing: tuple[str, ...]) -> tuple[str, ...]:
        """``missing`` streams, with those of later numbers of their sources: whoever has an older
        file knows nothing of these.
        """
        later = {
            other
            for each in missing
            for other in (self.sources if self.changes else ())
            if other.partition(".")[0] == each.partition(".")[0]
            and self.shard_of(other)[0] > self.shard_of(each)[0]
        }
        return tuple(sorted({*missing, *later}))

    def partitions_of(self, stream: str) -> list[int]:
        """Return the input partitions that a stream is made from."""
        _, shard, count = self.shard_of(stream)
        return [each for each in range(self.source_partitions) if each % count == shard]

    @property
    def moved(self) -> str:
        """The replica that is moved, or is the first of the shard that is split; empty: none is."""
        if self.scenario == SPLIT:
            return f"{self.stages[0].name}.0"
        return (
            f"{self.stages[self.seed % len(self.stages)].name}.0"
            if self.scenario in ("moved", SCALED)
            else ""
        )

    @property
    def may_overload_last(self) -> bool:
        """Whether an overloaded stage may hold so little of its input that it soon has no room."""
        return self.scenario in OVERLOADS and self.input_parts_max is not None

    def declares_horizon(self, stage: StageOptions) -> bool:
        """Whether the pipeline file has the ``state_horizon`` of ``stage``."""
        return (
            stage.ha in ("upstream_backup", "amnesia")
            or self.scenario == "added late"
            or stage.version_is_in_state
            or stage.may_split
            or (self.scenario in OVERLOADS and self.seed % 2 == 1)
        )

    def reads_what_is_shed(self, stage: StageOptions) -> bool:
        """Whether ``stage`` reads results of one that may leave out rows."""
        return any(other.sheds for other in self.stages if other.name in stage.reads)

    @property
    def has_notes(self) -> bool:
        """Some results are too large for their stream."""
        return any(stage.has_notes for stage in self.stages)

    @property
    def has_two_lives(self) -> bool:
        """Topics are deleted and created again in the middle of the run."""
        return self.scenario in ("made anew", "outlived")

    @property
    def new_nodes(self) -> dict[str, str]:
        """Nodes to which the replica may be moved, by the suffix of their processes' names."""
        third = {ON_THIRD: THIRD_NODE} if self.recovers_in_parallel else {}
        return {ON_NEW: NEW_NODE} | third

    @property
    def federation(self) -> Federation | None:
        """Participants that may run stages of the pipeline, besides its owner; None if there are
        none.
        """
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
        """Participant that recomputes samples of a sold stage; empty if none."""
        return ""

    @property
    def spoils(self) -> str:
        """A stage of which some buckets may be wrong; empty: none."""
        return ""

    @property
    def spoiler(self) -> str:
        """The node that makes them wrong; empty: none."""
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
            (self.output_shards, *self.output_changes),
            self.own_max_delay_ms,
        )
        return (first,) if self.second is None else (first, self.second)

    def made_from(self, stream: str) -> set[str]:
        """Return the streams that the rows of ``stream`` are made from, without itself."""
        found: set[str] = set()
        for stage in reversed(self.stages):
            if stage.name == stream or stage.name in found:
                found.update(stage.reads)
        return found


def _members(name: str, numbers: tuple[int, ...]) -> list[str]:
    """Return the shards of a source or output, of all numbers that it has, one after the other."""
    count, *changes = numbers
    later = [
        f"{name}.{number}-{shard}"
        for number, many in enumerate(changes, 2)
        for shard in range(many)
    ]
    return [*([name] if count == 1 else [f"{name}.{shard}" for shard in range(count)]), *later]
