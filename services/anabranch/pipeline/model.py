"""Values of a checked pipeline. Only ``pipeline.file.load`` makes a ``Pipeline``, so whatever holds
one holds a checked one.

A *source* is a stream that ingestion writes, a *stage* one that processing writes, an *output* a
stream that delivery hands to users. All times are in ms; ``None`` for a time means never or
unlimited, as the field's docstring states.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from anabranch.codec.change_schema import change_schema
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema
from anabranch.codec.subject_names import Strategy
from anabranch.pipeline.topic_names import TopicNames
from anabranch.protocol.control.placement import PlacedStage, Places, place
from anabranch.protocol.edge.handover import SourceStream
from anabranch.protocol.edge.shards import Shard, members, whole_of
from anabranch.protocol.federation.costs import CornerCost, Cost, QueueCost
from anabranch.protocol.federation.offered_stages import Terms
from anabranch.protocol.limits import (
    KEY_AND_HEADERS_BYTES,
    RECORD_BYTES_MAX,
    RECORD_BYTES_ON_BROKER_MAX,
)
from anabranch.protocol.stage.owners_checkpoint import Transfer
from anabranch.protocol.stage.recovery import HaMode
from anabranch.protocol.stage.shares import Share
from anabranch.protocol.stage.utility import Qos

__all__ = [
    "Binding",
    "EventTime",
    "Field",
    "HaMode",
    "IdleTimeout",
    "KafkaColumn",
    "LiveSink",
    "OfferedStage",
    "Output",
    "Pipeline",
    "RecordSchema",
    "Shed",
    "Sink",
    "Source",
    "Stage",
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class EventTime(_Model):
    """Rule for a row's event time."""

    field: str | None
    """Column, or with dots a part of a nested one; None: the timestamp of the Kafka record."""
    unit: Literal["ms", "s", "us", "ns"] = "ms"
    """Unit of the field; ``us`` of timestamps and texts."""
    is_text: bool = False
    """Whether the field is a text in JSON: a timestamp, or a text in ISO 8601."""
    zone: str | None = None
    """Zone of fields that name none, such as ``Europe/Berlin``; None: they must name one."""
    of_producer: bool = False
    """Whether the timestamp of the Kafka record is the producer's; only without a field."""

    @property
    def number_unit(self) -> str | None:
        """Unit that the file names, or could; None: the field's type tells, or there is none."""
        return None if self.field is None or self.is_text else self.unit

    @property
    def is_arrival(self) -> bool:
        """Whether it is the time at which the broker received the record."""
        return self.field is None and not self.of_producer


class IdleTimeout(_Model):
    """Timeouts after which a source without records no longer holds its boundary back."""

    partition_ms: int | None = 5_000
    """Idle time, in ms, after which a partition no longer holds the boundary back while other
    partitions have records; None: never.
    """
    source_ms: int | None = None
    """Idle time of the whole source, in ms, after which its boundary advances by elapsed time;
    None: never.
    """


class _Sharded(_Model):
    """Base of sources and outputs: work that processes divide among themselves by the partitions of
    topics (``protocol.edge.shards``).
    """

    name: str
    shards: int = 1
    """Number of processes, each for its part of the partitions."""
    shards_before: list[int] = []
    """Earlier numbers of shards, in their order; 0: nothing needs what that generation wrote."""

    @property
    def numbers(self) -> list[int]:
        """Numbers of shards by generation; the last one is the current."""
        return [*self.shards_before, self.shards]

    def generation(self, number: int) -> list[str]:
        """Return the names of the processes of generation ``number``, which counts from 1, by
        shard.
        """
        return members(self.name, self.numbers[number - 1], number)

    def processes(self) -> list[str]:
        """Return the names of the current processes, by shard."""
        return self.generation(len(self.numbers))

    def earlier_processes(self) -> list[str]:
        """Return the names of the processes of all earlier generations."""
        return [
            process for number in range(1, len(self.numbers)) for process in self.generation(number)
        ]

    def processes_before(self, process: str) -> list[str]:
        """Return the processes of the generation before that of ``process``, by shard; empty: it is
        the first one, or the file no longer names it.
        """
        for number in range(2, len(self.numbers) + 1):
            if process in self.generation(number):
                return self.generation(number - 1)
        return []


class KafkaColumn(_Model):
    """Column that holds a part of the Kafka record other than its value."""

    field: Field
    """Column: its name, type, and for a decoded key the fields inside."""
    part: Literal["key", "header", "timestamp", "partition", "offset", "topic"]
    header: str = ""
    """Name of the header, for the part ``header``."""
    record: RecordSchema | None = None
    """Record that a key is; None: the column holds its bytes or text."""
    format: str = "json"
    """Format of a decoded key, one of ``codec.formats.FORMATS``."""


class Source(_Sharded):
    """Input stream: the user's topics, their record, and the rule for event time."""

    topics: list[str]
    record: RecordSchema
    format: str = "json"
    """Format of the records, one of ``codec.formats.FORMATS``."""
    cdc: Literal["debezium"] | None = None
    """Envelope in which rows come as change events; None: a value is a row."""
    columns: tuple[KafkaColumn, ...] = ()
    """Columns after those of the record."""
    event_time: EventTime
    out_of_orderness_ms: int = 0
    """Time in ms by which a record may be older than the newest of its partition."""
    idle_timeout: IdleTimeout = IdleTimeout()
    bounded: bool = False
    """Whether the data is finite: the stream ends with its topics."""
    max_ahead_ms: int | None = 60_000
    """Time in ms from which a record ahead of the clock becomes a dead letter; None: unlimited."""
    late: Literal["dead_letter", "reassign"] = "dead_letter"
    """Treatment of a record that is not newer than the boundary: dead letter, or reassigned to the
    open bucket.
    """
    extra_fields: Literal["ignore", "reject"] = "ignore"
    """Treatment of fields that the record does not have, in formats that allow them: ignore them,
    or make the record a dead letter.
    """
    max_record_bytes: int = RECORD_BYTES_MAX
    """Size of the largest value, in bytes; larger ones are dead letters."""
    dead_letter: str
    """Topic of the dead letters."""
    history_ms: int = 0
    """Time, in ms, for which rows are kept after all readers have passed them (``anabranch tap``).
    """
    start: Literal["earliest", "latest"] | int = "earliest"
    """Position of the first read of a source that has no progress yet. A number: the first record
    with this timestamp, in ms since 1970, or a later one.
    """

    @property
    def topic_config(self) -> dict[str, str]:
        """Settings of an input topic that is created, beside those of its kind."""
        return {"max.message.bytes": str(self.max_record_bytes + KEY_AND_HEADERS_BYTES)}

    @property
    def rows(self) -> RecordSchema:
        """Columns of the stream, without event time, as a record."""
        row = self.record if self.cdc is None else change_schema(self.record).rows
        added = (column.field for column in self.columns)
        return replace(row, fields=(*row.fields, *added))

    @property
    def values(self) -> RecordSchema:
        """Record that each value is."""
        return self.record if self.cdc is None else change_schema(self.record).envelope

    @property
    def needs_timestamps(self) -> bool:
        """Whether rows depend on the timestamps of the Kafka records."""
        return self.event_time.field is None or any(
            column.part == "timestamp" for column in self.columns
        )

    def streams(self) -> list[str]:
        """Return the streams that the source consists of, each named like the process that writes
        it: those of the current shards, and of earlier numbers of shards as far as they are still
        needed (``protocol.edge.handover``).
        """
        return [*self.earlier_processes(), *self.processes()]

    def shard(self, stream: str) -> Shard:
        """Return the shard of its generation that writes ``stream``, one of ``streams``."""
        generation = self.generation(self.stream(stream).generation)
        return Shard(generation.index(stream), len(generation))

    def stream(self, name: str) -> SourceStream:
        """Return the generation and numbers of shards of ``name``, one of ``streams``."""
        numbers = tuple(self.numbers)
        known = (n for n in range(1, len(numbers) + 1) if name in self.generation(n))
        return SourceStream(self.name, numbers, next(known))


class OfferedStage(_Model):
    """Stage that its owner runs for others (``protocol.federation.offered_stages``)."""

    name: str
    terms: Terms
    reads: dict[str, RecordSchema]
    """Columns of its inputs, by the inputs' names."""
    gives: RecordSchema
    """Columns of its result."""
    offered_to: list[str] | None = None
    """Participants that may instantiate it; None: all. Known to the owner only."""
    transform: list[str] = []
    """Functions, as of a stage. Known to the owner only."""
    sql: str | None = None
    """Query, as of a stage. Known to the owner only."""
    path: Path
    """File that declares the offer. Its functions are found next to the owner's file."""


MASTER: Final = (
    r"^(local(\[[1-9][0-9]{0,3}(,[1-9][0-9]*)?\])?|spark://[^\s,/:]+:[0-9]+(,[^\s,/:]+:[0-9]+)*)$"
)
"""Regular expression of a Spark master that a node can have: in the node's process, or a standalone
cluster.
"""
MASTER_FORMS: Final = "write local[2], or spark://HOST:PORT of a standalone cluster"
"""Hint on the form of ``MASTER``, for messages."""


class Resources(_Model):
    """Limits of a node's Spark, or the needs of a stage; None: as the environment sets."""

    memory: str | None = None
    """Heap of the Java process, such as ``2g``."""
    cores: int | None = None
    """Number of tasks that run at once."""
    master: str | None = None
    """Spark master (``MASTER``); only for a node."""


class Shed(_Model):
    """Rows that a stage may leave out of its tentative results while it is overloaded."""

    kind: Literal["off", "rows", "keys", "by", "transform"] = "off"
    """Choice of the rows: none; each by a hash of all of its columns; all rows of a key together,
    by a hash of the key; those that an expression, or a function, says matter least.
    """
    expression: str = ""
    """SQL expression over the columns of an input that says how much each row matters; only of the
    kind ``by``.
    """
    function: str = ""
    """Function, as ``module:function``, that says how much each row matters; only of the kind
    ``transform``.
    """
    by: dict[str, tuple[str, ...]] = {}
    """Key columns of each input of which rows may be left out; without columns each row counts by
    all of its columns. Other inputs are read whole.
    """


class Scaling(_Model):
    """Pool of nodes to which replicas move by themselves, and when
    (``protocol.control.scaling``).
    """

    pool: list[str]
    """Nodes without replicas of their own, in the order in which the file names them."""
    above_permille: int
    """Share of the time that the batches of a replica may fill, in permille."""
    for_ms: int
    """Time for which a replica must be overloaded before one moves, in ms."""
    rest_ms: int
    """Shortest time between two moves for load, in ms."""
    parallel: int = 1
    """Number of nodes, 1 or 2, on which the state of a shard is made anew whose node is lost."""


class Stage(_Model):
    """Query fragment that one participant runs."""

    name: str
    participant: str
    reads: list[str]
    """Input streams: names of sources, stages or bindings."""
    transform: list[str]
    """Functions, as ``module:function``, applied one after the other; none where there is ``sql``.
    """
    sql: str | None = None
    """Spark SQL query over the inputs, by their names."""
    replicas: int = 1
    ha: HaMode = "active"
    """Mode of recovery from the loss of a process or its disk (docs/concepts.md)."""
    state_horizon_ms: int | None = None
    """Time after a record's event time, in ms, from which it no longer changes results; None: not
    known. Always known for ``upstream_backup`` and ``amnesia``.
    """
    transfer: Transfer = Transfer.REBUILD
    """Way in which a node to which the stage moves gets its state; ``checkpoint`` only with
    ``upstream_backup`` (``protocol.stage.owners_checkpoint``).
    """
    on_missing_input: Literal["process", "delay", "suspend"] = "process"
    version: int = 1
    """Version of what the stage computes. Raise it when the computation changes: it then replaces
    earlier versions from one bucket on (BL15 of ``protocol.log.boundary_log``).
    """
    parameters: dict[str, object] = {}
    history_ms: int = 0
    """Time, in ms, for which results are kept after all readers have passed them (``anabranch
    tap``).
    """
    resources: Resources = Resources()
    """Needs of the stage from its node (``pipeline.resources.of_node``)."""
    offered: OfferedStage | None = None
    """Offer of another participant that this stage is an instance of; None: the owner's own stage.
    """
    share: Share | None = None
    """Share of its inputs' rows that the stage takes, where it is a shard; None: all rows."""
    parent: str = ""
    """Shard that this one is a half of. It runs only once that one is split
    (``protocol.stage.splitting``); empty: the stage begins with it.
    """
    shed: Shed = Shed()
    """Rows that the stage may leave out of its tentative results while it is overloaded."""

    @property
    def is_whole_or_first_shard(self) -> bool:
        """Whether it is a whole stage or its first shard. Checks of what all shards have in common
        run on this one only, so that a mistake is reported once.
        """
        return not self.parent and (self.share is None or not self.share.interval.prefix)

    @property
    def functions(self) -> list[str]:
        """Functions that compute it, as messages name them."""
        if self.offered is not None and not self.has_code:
            return [f"{self.participant}/{self.offered.name}"]
        return ["sql"] if self.sql is not None else self.transform

    @property
    def has_code(self) -> bool:
        """Whether the code that computes it is known here."""
        return bool(self.transform) or self.sql is not None

    @property
    def arguments(self) -> list[str]:
        """Names under which its code receives the inputs, in the order of ``reads``."""
        return self.reads if self.offered is None else list(self.offered.reads)

    @property
    def rows_per_s(self) -> int:
        """Limit on the stage's input, in rows per second; 0: no limit."""
        return 0 if self.offered is None else self.offered.terms.rows_per_s

    def found_next_to(self, pipeline_file: Path) -> Path:
        """Return the file in whose folder its functions are found."""
        return pipeline_file if self.offered is None else self.offered.path

    @property
    def backup_horizon_ms(self) -> int | None:
        """Horizon in ms from which a stage restarts that saves its state nowhere else
        (``protocol.stage.recovery``); None: the stage has another mode.
        """
        return self.state_horizon_ms if self.ha in ("upstream_backup", "amnesia") else None

    def process_ids(self) -> list[str]:
        """Return the ids of the processes that run the stage or stand by."""
        return [str(number) for number in range(self.replicas)]

    def replica_ids(self) -> list[str]:
        """Return the ids of the replicas, which are the writers of the stage's stream. With ``ha:
        passive`` all processes are one replica: only one of them writes at a time.
        """
        return ["0"] if self.ha == "passive" else self.process_ids()

    def placed(self) -> PlacedStage:
        """Return the properties of the stage that its placement depends on."""
        return PlacedStage(
            self.name, self.participant, tuple(self.process_ids()), parent=self.parent
        )


class Binding(_Model):
    """Stream of another participant's pipeline that stages here read."""

    name: str
    """Name of the stream in this pipeline."""
    pipeline: str
    stream: str
    """Name of the stream in its own pipeline, where it is a stage."""
    record: RecordSchema
    """Columns that are expected."""
    replicas: int = 1
    """Number of writers of the stream."""
    hops: int = 1
    """Number of stages from a source to the stream, in its own pipeline."""
    out_of_orderness_ms: int = 0
    """Largest out-of-orderness of the sources that the stream is made from, in ms."""
    cluster: str = ""
    """Name in the file of the cluster that holds its topics; empty: the own one."""
    participant: str = ""
    """Owner of the stream in the federation. Only records count that the owner signed, or a signer
    that it named, with a key that the signer published. Empty: ``keys`` decides.
    """
    keys: list[str] = []
    """Public keys, as hexadecimal digits; only records signed with one of them count. Empty, like
    ``participant``: every record on its topics counts.
    """

    def key_bytes(self) -> list[bytes]:
        """Return ``keys`` as bytes."""
        return [bytes.fromhex(key) for key in self.keys]

    def replica_ids(self) -> list[str]:
        """Return the ids of the stream's writers."""
        return [str(number) for number in range(self.replicas)]


class Sink(_Model):
    """Topic of a user that delivery writes."""

    topic: str
    format: str = "json"
    """Format of the records, one of ``codec.formats.FORMATS``."""
    key: list[str] = []
    """Columns of the record key; empty: records have no key."""
    key_format: str = "json"
    """Format of the keys, one of ``codec.formats.FORMATS``."""
    subject: Strategy = "topic"
    """Naming of the subjects of its schemas in the schema registry."""
    partitions: int | None = None
    """Number of partitions; None: as the topic has, or the pipeline's number when it is created."""
    max_record_bytes: int | None = None
    """Size of the largest value, in bytes, for which a topic that is created has room; None: as
    topics of its kind have.
    """

    @property
    def topic_config(self) -> dict[str, str]:
        """Settings of the topic when it is created, beside those of its kind."""
        if self.max_record_bytes is None:
            return {}
        wanted = self.values_per_record * self.max_record_bytes + KEY_AND_HEADERS_BYTES
        return {"max.message.bytes": str(min(wanted, RECORD_BYTES_ON_BROKER_MAX))}

    @property
    def values_per_record(self) -> int:
        """Number of values that one record may have."""
        return 1


class LiveSink(Sink):
    """Live topic of a user. Its key is that of the corrected topic unless it states its own."""

    upsert: bool = False
    """Whether the topic is compacted and holds the newest value per key, instead of the sequence of
    all results, tentative and corrected.
    """

    @property
    def values_per_record(self) -> int:
        """Number of values that one record may have: of a view, the last stable one, too."""
        return 2 if self.upsert else 1


class Output(_Sharded):
    """Stage's stream as users receive it. Each shard delivers its part of the corrected topic's
    partitions (``protocol.edge.delivery``); the first one also writes the live topic.
    """

    stage: str
    corrected: Sink
    live: LiveSink | None = None
    qos: Qos | None = None
    """Utility of its results by delay and loss; None: as ``waits.qos_of`` assumes."""
    max_delay_ms: int | None = None
    """Maximum time that a failure may add to the delay of its new results, in ms; None: that of the
    pipeline (``Pipeline.max_delay_of``).
    """

    def partitions_wanted(self, usual: int) -> int:
        """Return the number of partitions with which the corrected topic is created. ``usual``: the
        pipeline's number.
        """
        return self.corrected.partitions or max(usual, *self.numbers)

    def shard(self, process: str) -> Shard:
        """Return the shard of the output that ``process``, one of ``processes``, is."""
        return Shard(self.processes().index(process), self.shards)

    @property
    def rejected(self) -> str:
        """Topic of the results that are too large for the corrected topic."""
        return f"{self.corrected.topic}.rejected"


class AgentPolicy(_Model):
    """Trading policy: what load costs this participant, and how eagerly its agent trades. Private
    to the participant.
    """

    capacity_units: int
    """Load at which the participant is full, in units: rows of input per second."""
    scale_micro: int
    """Cost of each waiting unit, in micro-units per second
    (``protocol.federation.costs.QueueCost``).
    """
    corners: tuple[tuple[int, int], ...] = ()
    """Corners of the cost curve (``CornerCost``): load in units, and the cost of each unit from
    there on, in micro-units per second; empty: the cost is that of a queue.
    """
    margin_permille: int = 0
    """Share by which a bid exceeds its cost, for a seller, in permille."""
    recall_permille: int = 50
    """Share by which running a stage at home must be cheaper before a buyer recalls it, in
    permille.
    """
    offer_every_ms: int = 2_000
    """Interval between two offers, in ms."""
    answer_within_ms: int = 3_000
    """Time for which an offer is valid, in ms."""
    rest_ms: int = 5_000
    """Pause after an agreed offer, in ms, until the averages of load have followed the move."""
    backoff_ms: int = 60_000
    """Time in ms for which an agent makes no offers to a partner that repeatedly did not answer,
    and does not propose again a plan that was declined or has failed.
    """
    take_up: tuple[str, ...] = ()
    """Participants from which this one would read a stream instead: its agent takes up suggested
    contracts with them (``protocol.federation.suggestions``).
    """

    def cost(self) -> Cost:
        """Return the cost function of load.

        Raises:
            ConfigurationError: the corners are not convex.
        """
        if self.corners:
            return CornerCost(self.corners)
        return QueueCost(self.capacity_units, self.scale_micro)


class Federation(_Model):
    """Federation that the pipeline's owner belongs to."""

    name: str
    """Name of the federation, and prefix of its topics."""
    participant: str
    """Name of the owner in it."""
    auditor: str = ""
    """Participant whose audits count; empty: there is no auditor."""
    partners: dict[str, list[str]] = {}
    """Participants that may run stages of this pipeline, and these stages."""
    hosts: dict[str, Path] = {}
    """Pipelines of others whose stages may run here, with this participant's copy of each one's
    file.
    """
    agent: AgentPolicy | None = None
    """Trading policy of this participant; None: it does not trade."""
    offers: dict[str, OfferedStage] = {}
    """Stages that this participant runs for others."""
    host: str = ""
    """Participant that reads the file to run its offers in it (``pipeline.offer_instances``);
    empty: the owner reads it.
    """


class Pipeline(_Model):
    """Checked content of a pipeline file."""

    version: Literal[1] = 1
    """Version of the file's keys and their meaning."""
    name: str
    path: Path
    bucket_ms: int
    max_delay_ms: int
    partitions: int
    sources: dict[str, Source]
    stages: dict[str, Stage]
    outputs: dict[str, Output]
    bindings: dict[str, Binding] = {}
    """Streams of other pipelines, by their names here."""
    clusters: dict[str, str] = {}
    """Addresses of other owners' Kafka clusters, by their names here."""
    stage_shards: dict[str, list[str]] = {}
    """Names of the shards that each stage with shards has or may get: those with which it begins,
    then their halves, each time in the order of their intervals. The shards are in ``stages``.
    """
    k_safety: int = 0
    """Number of losses at once, of processes, disks or brokers, that the file claims to survive."""
    publish_ms: dict[str, int] = {}
    """Stages that other pipelines read, and how long blocks are kept for them, in ms."""
    publish_records: dict[str, RecordSchema] = {}
    """Columns of published stages, where the file states them."""
    named_nodes: dict[str, list[str]] = {}
    """Replicas of each node that the file names, as ``STAGE.REPLICA``. The placement rule places
    all others (``protocol.control.placement``).
    """

    resources: dict[str, Resources] = {}
    """Resources of nodes, by name; other nodes have what their environment sets."""
    scaling: Scaling | None = None
    """Section ``scaling`` of the file; None: replicas move by command alone."""
    federation: Federation | None = None
    schema_registry: str | None = None
    """URL of the schema registry of which Avro records carry ids; None: ids are those of the schema
    files.
    """

    def max_delay_of(self, output: str) -> int:
        """Return what a failure may add to the delay of new results of ``output``, in ms."""
        own_ms = self.outputs[output].max_delay_ms
        return self.max_delay_ms if own_ms is None else own_ms

    @property
    def topic_names(self) -> TopicNames:
        """Names of the internal topics."""
        bound = ((b.name, b.pipeline, b.stream) for b in self.bindings.values())
        return TopicNames(self.name, tuple(bound))

    def stream_writers(self, stream: str) -> list[str]:
        """Return the replica ids of a stream's writers.

        Raises:
            KeyError: there is no such stream.
        """
        if stream in self.source_streams():
            return ["0"]
        if stream in self.bindings:
            return self.bindings[stream].replica_ids()
        return self.stages[stream].replica_ids()

    def cluster_of(self, stream: str) -> str:
        """Return the cluster that holds the topics of a stream; empty: the own one."""
        binding = self.bindings.get(stream)
        return "" if binding is None else binding.cluster

    def reads_elsewhere(self, stage: str) -> bool:
        """Return whether an input of ``stage`` is on another cluster. No other participant runs
        such a stage.
        """
        return any(map(self.cluster_of, self.stages[stage].reads))

    def is_of(self, participant: str, stream: str) -> bool:
        """Return whether only processes that ``participant`` trusts as its own write ``stream``, a
        stream or an input of several: those of its stages and of its pipeline's sources.

        False for all streams where others may run stages: their nodes read what the owner's nodes
        wrote, and write what the owner's nodes read.
        """
        if self.offering_nodes or (self.federation is not None and self.federation.partners):
            return False
        if whole_of(stream) in self.sources:
            return True
        stage = self.stages.get(self.input_streams(stream)[0])
        return stage is not None and stage.participant == participant

    def others_write(self, stream: str) -> bool:
        """Return whether another participant may write ``stream``: that of a binding, of an offered
        stage, or of a stage that a partner may run.
        """
        stage = self.stages.get(stream)
        return (
            stream in self.bindings
            or (stage is not None and stage.offered is not None)
            or stream in self.traded_stages()
        )

    def streams(self) -> list[str]:
        """Return all streams of the pipeline itself: sources in the order of the file, then stages
        in dependency order.
        """
        return [*self.source_streams(), *self.order()]

    def source_streams(self) -> list[str]:
        """Return the streams that ingestion writes or, in earlier shards, has written."""
        return [stream for source in self.sources.values() for stream in source.streams()]

    def source_processes(self) -> list[str]:
        """Return the names of the ingestion processes; each writes the stream of its name."""
        return [process for source in self.sources.values() for process in source.processes()]

    def input_streams(self, name: str) -> list[str]:
        """Return the streams that make up the input ``name``: those of its shards, or itself."""
        if name in self.sources:
            return self.sources[name].streams()
        return self.stage_shards.get(name, [name])

    def halves(self, stage: str) -> list[str]:
        """Return the halves into which the shard ``stage`` may be split; empty: it may not be."""
        return [name for name, each in self.stages.items() if each.parent == stage]

    @property
    def may_split(self) -> bool:
        """Whether any shard may be split."""
        return any(stage.parent for stage in self.stages.values())

    def is_recovered_in_parallel(self, stage: str) -> bool:
        """Return whether the shard ``stage`` is split if its node is lost."""
        is_wanted = self.scaling is not None and self.scaling.parallel > 1
        return is_wanted and bool(self.halves(stage))

    def begins_with(self, stage: str) -> list[str]:
        """Return the shards with which ``stage`` begins; empty: it has none."""
        shards = self.stage_shards.get(stage, [])
        return [shard for shard in shards if not self.stages[shard].parent]

    def inputs(self, stage: str) -> list[str]:
        """Return the streams that ``stage`` reads, in the order in which it names them; of an input
        with shards, all.
        """
        return [each for name in self.stages[stage].reads for each in self.input_streams(name)]

    def unsplit(self) -> Pipeline:
        """Return the pipeline with whole stages in place of their shards, for commands that examine
        what stages compute and run none of them.
        """
        stages: dict[str, Stage] = {}
        for name, stage in self.stages.items():
            is_union = name in self.stage_shards and name not in self.stage_shards[name]
            if stage.is_whole_or_first_shard and not is_union:
                whole = whole_of(name)
                changes = {"name": whole, "share": None, "shed": Shed()}
                stages[whole] = stage.model_copy(update=changes)
        return self.model_copy(update={"stages": stages, "stage_shards": {}})

    def order(self) -> list[str]:
        """Return the stages in dependency order; otherwise in the order of the file."""
        done: list[str] = []

        def visit(stage: str) -> None:
            if stage in done:
                return
            for stream in self.inputs(stage):
                if stream in self.stages:
                    visit(stream)
            done.append(stage)

        for name in self.stages:
            visit(name)
        return done

    def placed_stages(self) -> list[PlacedStage]:
        """Return what placement needs of each stage, in dependency order."""
        return [self.stages[name].placed() for name in self.order()]

    def nodes(self) -> dict[str, list[str]]:
        """Return the replicas of each node, as ``STAGE.REPLICA``, as the file places them, without
        moves.
        """
        return place(self.placed_stages(), self.named_nodes)

    def places(self) -> Places:
        """Return the placement of the file, to which moves can be applied."""
        return Places(self.placed_stages(), self.named_nodes, self.partner_nodes)

    def reporting_nodes(self) -> list[str]:
        """Return the nodes that report their load to the scaler; none where nothing scales."""
        return [] if self.scaling is None else list(self.nodes())

    @property
    def partner_nodes(self) -> dict[str, list[str]]:
        """Nodes that other participants run under contracts, and the stages that may be moved
        there.
        """
        partners = {} if self.federation is None else self.federation.partners
        return {f"{partner}.0": stages for partner, stages in partners.items()}

    def traded_stages(self) -> list[str]:
        """Return the stages that partners may run, sorted. All have ``ha: upstream_backup``."""
        partners = {} if self.federation is None else self.federation.partners
        return sorted({stage for stages in partners.values() for stage in stages})

    def by_checkpoint(self) -> list[str]:
        """Return the stages whose state comes from their owner's checkpoint when they move."""
        return [
            stage.name for stage in self.stages.values() if stage.transfer is Transfer.CHECKPOINT
        ]

    def audited_stages(self) -> list[str]:
        """Return the stages that an auditor recomputes; none where there is no auditor."""
        is_audited = self.federation is not None and self.federation.auditor
        return self.traded_stages() if is_audited else []

    def other_signers(self) -> dict[str, list[str]]:
        """Return, for each published stream, the participants other than the owner that may run its
        stage. The owner has to name them as signers (``protocol.federation.stream_signers``). Empty
        where the file names no federation.
        """
        if self.federation is None:
            return {}
        owner, partners = self.federation.participant, self.federation.partners
        return {
            stream: sorted(
                {
                    self.stages[stream].participant,
                    *(who for who, traded in partners.items() if stream in traded),
                }
                - {owner}
            )
            for stream in self.publish_ms
        }

    def listed_records(self) -> dict[str, RecordSchema]:
        """Return the columns of published streams, where they are known; for an offered stage they
        are those of the offer's terms. No catalog lists the other streams.
        """
        found = {}
        for stream in self.publish_ms:
            offered = self.stages[stream].offered
            record = self.publish_records.get(stream) if offered is None else offered.gives
            if record is not None:
                found[stream] = record
        return found

    @property
    def host(self) -> str:
        """Participant that reads the file to run its offers in it, as in ``Federation.host``."""
        return "" if self.federation is None else self.federation.host

    @property
    def offering_nodes(self) -> dict[str, str]:
        """Nodes of participants that run their offers here, each with its participant."""
        owners = {stage.participant for stage in self.stages.values() if stage.offered is not None}
        if not owners:
            return {}
        places = self.places()
        return {
            node: places.owner_of(node) for node in self.nodes() if places.owner_of(node) in owners
        }

    def partner_processes(self) -> list[tuple[str, str]]:
        """Return (service, name) of every process that another participant runs: the partners'
        nodes and the auditor.
        """
        found = [("processing", node) for node in self.partner_nodes]
        if found and self.federation is not None and self.federation.auditor:
            found.append(("auditor", self.federation.auditor))
        return found

    def processes(self) -> list[tuple[str, str]]:
        """Return (service, name) of every process, in the order in which they start."""
        return [
            *(("ingestion", process) for process in self.source_processes()),
            *(("processing", node) for node in self.nodes()),
            *(("delivery", process) for process in self.deliveries()),
            ("consistency_manager", self.name),
            *(
                ()
                if self.federation is None
                else (("contract_broker", self.federation.participant),)
            ),
            *(
                ()
                if self.federation is None or self.federation.agent is None
                else (("agent", self.federation.participant),)
            ),
        ]

    def deliveries(self) -> dict[str, Output]:
        """Return the output that each delivery process delivers, by the process's name."""
        return {
            process: output for output in self.outputs.values() for process in output.processes()
        }

    def own_processes(self) -> list[tuple[str, str]]:
        """Return (service, name) of the processes that the reader of the file runs."""
        offering = self.offering_nodes
        if self.host:
            return [("processing", node) for node, owner in offering.items() if owner == self.host]
        return [
            (service, name)
            for service, name in self.processes()
            if service != "processing" or name not in offering
        ]

    def readers(self, stream: str) -> list[str]:
        """Return the stages that read a stream, in the order of the file."""
        return [name for name in self.stages if stream in self.inputs(name)]
