"""A pipeline as values. Only ``pipeline.file.load`` makes one, so whatever holds a ``Pipeline``
holds a checked one.

Words: a *source* is a stream that ingestion writes, a *stage* one that processing writes, an
*output* a stream that delivery hands to users. All times are in ms; ``None`` for a time means never
or unlimited, as the field's text says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline.topic_names import TopicNames
from anabranch.protocol.control.placement import PlacedStage, Places, place
from anabranch.protocol.edge.handover import SourceStream
from anabranch.protocol.edge.shards import Shard, members, whole_of
from anabranch.protocol.federation.costs import CornerCost, Cost, QueueCost
from anabranch.protocol.federation.offered_stages import Terms
from anabranch.protocol.stage.recovery import HaMode
from anabranch.protocol.stage.shares import Share

__all__ = [
    "Binding",
    "EventTime",
    "Field",
    "HaMode",
    "IdleTimeout",
    "LiveSink",
    "Offer",
    "Output",
    "Pipeline",
    "RecordSchema",
    "Sink",
    "Source",
    "Stage",
]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class EventTime(_Model):
    """Where a row's event time comes from."""

    field: str | None
    """Field of the record; None: the time at which the broker got the record."""
    unit: Literal["ms", "s", "us"] = "ms"
    is_timestamp: bool = False
    """The field is a timestamp; its unit is ``us`` then."""


class IdleTimeout(_Model):
    """How long silence holds the boundary back."""

    partition_ms: int | None = 5_000
    """A partition silent for so long is left out while others speak; None: never."""
    source_ms: int | None = None
    """A source silent for so long goes on by elapsed time; None: never."""


class _Sharded(_Model):
    """What processes share out among themselves by the partitions of topics
    (``protocol.edge.shards``).
    """

    name: str
    shards: int = 1
    """Processes, each for its part of the partitions."""
    shards_before: list[int] = []
    """The numbers that it had before, in their order; 0: nobody needs what one wrote any more."""

    @property
    def numbers(self) -> list[int]:
        """Of shards, by generation; the last one counts."""
        return [*self.shards_before, self.shards]

    def generation(self, number: int) -> list[str]:
        """The names of the processes of generation ``number``, by shard."""
        return members(self.name, self.numbers[number - 1], number)

    def processes(self) -> list[str]:
        """The names of the processes that run, by shard."""
        return self.generation(len(self.numbers))

    def earlier_processes(self) -> list[str]:
        """Those of the numbers that it had before."""
        return [
            process for number in range(1, len(self.numbers)) for process in self.generation(number)
        ]

    def processes_before(self, process: str) -> list[str]:
        """Return the processes of the number before that of ``process``, by shard; empty: there was
        none, or the file names it no more.
        """
        for number in range(2, len(self.numbers) + 1):
            if process in self.generation(number):
                return self.generation(number - 1)
        return []


class Source(_Sharded):
    """An input stream: user's topics, their record, and the rule for event time."""

    topics: list[str]
    record: RecordSchema
    format: str = "json"
    """One of ``codec.formats.FORMATS``."""
    event_time: EventTime
    out_of_orderness_ms: int = 0
    """A record may be older than its partition's newest by so much."""
    idle_timeout: IdleTimeout = IdleTimeout()
    bounded: bool = False
    max_ahead_ms: int | None = 60_000
    """Records further in front of the clock are dead letters; None: unlimited."""
    late: Literal["dead_letter", "reassign"] = "dead_letter"
    extra_fields: Literal["ignore", "reject"] = "ignore"
    """Fields that the record has not, in formats that can have them: left out, or the reason of a
    dead letter.
    """
    dead_letter: str
    start: Literal["earliest", "latest"] | int = "earliest"
    """Where it begins when it has never read anything; a number: with the first record whose
    timestamp is so late, in ms.
    """

    def streams(self) -> list[str]:
        """The streams that it is, which have the names of the processes that write them: those of
        earlier numbers of shards (``protocol.edge.handover``), as far as somebody needs them.
        """
        return [*self.earlier_processes(), *self.processes()]

    def shard(self, stream: str) -> Shard:
        """Which of the shards of its generation writes ``stream``, one of ``streams``."""
        generation = self.generation(self.stream(stream).generation)
        return Shard(generation.index(stream), len(generation))

    def stream(self, name: str) -> SourceStream:
        """What the file says of the stream ``name``, one of ``streams``."""
        numbers = tuple(self.numbers)
        known = (n for n in range(1, len(numbers) + 1) if name in self.generation(n))
        return SourceStream(self.name, numbers, next(known))


class Offer(_Model):
    """A stage that its owner runs for others (``protocol.federation.offered_stages``)."""

    name: str
    terms: Terms
    reads: dict[str, RecordSchema]
    """The columns of its inputs."""
    gives: RecordSchema
    offered_to: list[str] | None = None
    """Participants; None: all. Only the owner knows."""
    transform: list[str] = []
    """As of a stage. Only the owner has it."""
    sql: str | None = None
    path: Path
    """The file in which it stands: the functions are found next to the owner's."""


MASTER: Final = (
    r"^(local(\[[1-9][0-9]{0,3}(,[1-9][0-9]*)?\])?|spark://[^\s,/:]+:[0-9]+(,[^\s,/:]+:[0-9]+)*)$"
)
"""A master of Spark that a node can have: in its process, or a standalone cluster."""
MASTER_FORMS: Final = "write local[2], or spark://HOST:PORT of a standalone cluster"


class Resources(_Model):
    """What a node's Spark, or a stage of it, may take; None: as the environment says."""

    memory: str | None = None
    """Heap of its Java, such as ``2g``."""
    cores: int | None = None
    """Tasks that run at once."""
    master: str | None = None
    """Of Spark (``MASTER``); of a node alone."""


class Stage(_Model):
    """One query fragment of one participant."""

    name: str
    participant: str
    reads: list[str]
    """Streams: names of sources or stages."""
    transform: list[str]
    """``module:function``, applied one after the other; none where there is ``sql``."""
    sql: str | None = None
    """A query of Spark over the inputs by their names."""
    replicas: int = 1
    ha: HaMode = "active"
    """What is done for the loss of a process or its disk (docs/concepts.md)."""
    state_horizon_ms: int | None = None
    """A record changes results at most so much later than itself; None: not known. Always
    known for ``upstream_backup`` and ``amnesia``.
    """
    on_missing_input: Literal["process", "delay", "suspend"] = "process"
    version: int = 1
    """Of what the stage computes: raised when that changes, it replaces the versions before
    at one bucket (BL15 of ``protocol.log.boundary_log``).
    """
    parameters: dict[str, object] = {}
    resources: Resources = Resources()
    """What it needs of its node (``pipeline.resources.of_node``)."""
    offered: Offer | None = None
    """Another participant's, which this stage is an instance of; None: it is the owner's own."""
    share: Share | None = None
    """The rows of its inputs that it takes, where it is a shard; None: all."""

    @property
    def stands_for_all(self) -> bool:
        """Whether it is a whole stage, or its first shard: what is alike in all of them is looked
        at there.
        """
        return self.share is None or self.share.index == 0

    @property
    def functions(self) -> list[str]:
        """What computes it, as messages name it."""
        if self.offered is not None and not self.has_code:
            return [f"{self.participant}/{self.offered.name}"]
        return ["sql"] if self.sql is not None else self.transform

    @property
    def has_code(self) -> bool:
        """Whether what computes it is known here."""
        return bool(self.transform) or self.sql is not None

    @property
    def arguments(self) -> list[str]:
        """The names by which what computes it knows its inputs, in the order of ``reads``."""
        return self.reads if self.offered is None else list(self.offered.reads)

    @property
    def rows_per_s(self) -> int:
        """The cap of its rows of input; 0: there is none."""
        return 0 if self.offered is None else self.offered.terms.rows_per_s

    def found_next_to(self, pipeline_file: Path) -> Path:
        """The file next to which its functions are."""
        return pipeline_file if self.offered is None else self.offered.path

    @property
    def backup_horizon_ms(self) -> int | None:
        """The horizon by which a stage begins again that saves its state nowhere else
        (``protocol.stage.recovery``); None: another kind of stage.
        """
        return self.state_horizon_ms if self.ha in ("upstream_backup", "amnesia") else None

    def process_ids(self) -> list[str]:
        """Ids of the processes that run the stage or stand by."""
        return [str(number) for number in range(self.replicas)]

    def replica_ids(self) -> list[str]:
        """Ids of the replicas, which are the writers of the stage's stream. Processes that
        stand by for one another are one replica.
        """
        return ["0"] if self.ha == "passive" else self.process_ids()

    def placed(self) -> PlacedStage:
        """What decides about its places."""
        return PlacedStage(self.name, self.participant, tuple(self.process_ids()))


class Binding(_Model):
    """A stream of another participant's pipeline, as its stages here read it."""

    name: str
    """As it is called here."""
    pipeline: str
    stream: str
    """As it is called there: a stage."""
    record: RecordSchema
    """The columns that are expected."""
    replicas: int = 1
    """Writers of the stream."""
    hops: int = 1
    """Stages from a source to the stream, there."""
    out_of_orderness_ms: int = 0
    """The largest of the sources that it is made from."""
    cluster: str = ""
    """Where its topics are, of the clusters that the file names; empty: on the own one."""
    participant: str = ""
    """Its owner in the federation: only what it signed counts, or whom it has named, with keys that
    they have published. Empty: ``keys`` says who is believed.
    """
    keys: list[str] = []
    """Public keys, as hexadecimal digits: only what one of them signed counts. Empty, as
    ``participant``: whoever may write its topic is believed.
    """

    def key_bytes(self) -> list[bytes]:
        """``keys``."""
        return [bytes.fromhex(key) for key in self.keys]

    def replica_ids(self) -> list[str]:
        """Ids of the writers."""
        return [str(number) for number in range(self.replicas)]


class Sink(_Model):
    """A user's topic that delivery writes."""

    topic: str
    format: str = "json"
    """One of ``codec.formats.FORMATS``."""
    key: list[str] = []
    """Columns; empty: records have no key."""
    partitions: int | None = None
    """None: as the topic has, or the pipeline's number when it is created."""


class LiveSink(Sink):
    """A user's live topic. Its key is that of the corrected topic unless it has its own."""

    upsert: bool = False
    """A compacted topic that holds per key the newest value, instead of the sequence of what
    became known.
    """


class Output(_Sharded):
    """A stage's stream as users get it. Each shard delivers its part of the corrected topic's
    partitions (``protocol.edge.delivery``); the first one also writes the live topic.
    """

    stage: str
    corrected: Sink
    live: LiveSink | None = None

    def partitions_wanted(self, usual: int) -> int:
        """Of the corrected topic where it is made. ``usual``: the pipeline's number."""
        return self.corrected.partitions or max(usual, *self.numbers)

    def shard(self, process: str) -> Shard:
        """Which of its shards ``process`` is, one of ``processes``."""
        return Shard(self.processes().index(process), self.shards)

    @property
    def rejected(self) -> str:
        """The topic of results that the corrected topic rejects for their size."""
        return f"{self.corrected.topic}.rejected"


class AgentPolicy(_Model):
    """What load costs this participant, and how eagerly its agent trades. Nobody else sees it."""

    capacity_units: int
    scale_micro: int
    """Micro-units per second for each that waits (``protocol.federation.costs.QueueCost``)."""
    corners: tuple[tuple[int, int], ...] = ()
    """Units, and what each costs from there on, in micro-units per second (``CornerCost``); empty:
    it is that of a queue.
    """
    margin_permille: int = 0
    """As seller: a bid is above its cost by so much."""
    recall_permille: int = 50
    """As buyer: home is cheaper by so much when a stage is recalled."""
    offer_every_ms: int = 2_000
    answer_within_ms: int = 3_000
    rest_ms: int = 5_000
    backoff_ms: int = 60_000

    def cost(self) -> Cost:
        """What a level of load costs.

        Raises:
            ConfigurationError: the corners are not convex.
        """
        if self.corners:
            return CornerCost(self.corners)
        return QueueCost(self.capacity_units, self.scale_micro)


class Federation(_Model):
    """The federation that the pipeline's owner belongs to."""

    name: str
    """Its topics begin with it."""
    participant: str
    """Who the owner is in it."""
    auditor: str = ""
    """The participant whose findings count; empty: nobody's do."""
    partners: dict[str, list[str]] = {}
    """Participants who may run stages of this pipeline, and which."""
    hosts: dict[str, Path] = {}
    """Pipelines of others whose stages may run here, and this participant's own file of each."""
    agent: AgentPolicy | None = None
    """How this participant trades; None: it does not."""
    offers: dict[str, Offer] = {}
    """What this participant runs for others."""
    host: str = ""
    """Who reads the file to run in it what it offers (``pipeline.offered``); empty: the owner."""


class Pipeline(_Model):
    """Everything that the pipeline file says."""

    version: Literal[1] = 1
    """Of the file's keys and their meaning."""
    name: str
    path: Path
    bucket_ms: int
    max_delay_ms: int
    partitions: int
    sources: dict[str, Source]
    stages: dict[str, Stage]
    outputs: dict[str, Output]
    bindings: dict[str, Binding] = {}
    """Streams of other pipelines, by the names that they have here."""
    clusters: dict[str, str] = {}
    """Addresses of other owners' Kafka clusters, by the names that they have here."""
    stage_shards: dict[str, int] = {}
    """Stages that are split, and into how many of ``stages``, which ``members`` names."""
    publish_ms: dict[str, int] = {}
    """Stages that other pipelines read, and how long blocks are kept for these."""
    publish_records: dict[str, RecordSchema] = {}
    """The columns of published stages, where the file states them."""
    named_nodes: dict[str, list[str]] = {}
    """What the file says of nodes: ``STAGE.REPLICA`` of each. Where it says nothing the rule
    places (``protocol.control.placement``).
    """

    resources: dict[str, Resources] = {}
    """Of nodes by name; others have what their environment says."""
    federation: Federation | None = None
    schema_registry: str | None = None
    """URL of the registry whose ids the records of Avro topics have; None: the ids are those of the
    schemas' files.
    """

    @property
    def topic_names(self) -> TopicNames:
        """Names of the internal topics."""
        bound = ((b.name, b.pipeline, b.stream) for b in self.bindings.values())
        return TopicNames(self.name, tuple(bound))

    def stream_writers(self, stream: str) -> list[str]:
        """Replica ids of the writers of a stream.

        Raises:
            KeyError: there is no such stream.
        """
        if stream in self.source_streams():
            return ["0"]
        if stream in self.bindings:
            return self.bindings[stream].replica_ids()
        return self.stages[stream].replica_ids()

    def cluster_of(self, stream: str) -> str:
        """The cluster on which the topics of a stream are; empty: the own one."""
        binding = self.bindings.get(stream)
        return "" if binding is None else binding.cluster

    def reads_elsewhere(self, stage: str) -> bool:
        """Whether an input of ``stage`` is on another cluster. Nobody else runs such a stage."""
        return any(map(self.cluster_of, self.stages[stage].reads))

    def is_of(self, participant: str, stream: str) -> bool:
        """Whether processes that ``participant`` trusts as its own write a stream, or an input of
        several: those of its stages, and of the sources of its pipeline. Where others may run
        stages no stream is: their nodes read what the owner wrote, and write what the owner reads.
        """
        if self.offering_nodes or (self.federation is not None and self.federation.partners):
            return False
        if whole_of(stream) in self.sources:
            return True
        stage = self.stages.get(self.input_streams(stream)[0])
        return stage is not None and stage.participant == participant

    def streams(self) -> list[str]:
        """All streams of its own: sources as written, then stages in dependency order."""
        return [*self.source_streams(), *self.order()]

    def source_streams(self) -> list[str]:
        """Those that ingestion writes, or has written."""
        return [stream for source in self.sources.values() for stream in source.streams()]

    def source_processes(self) -> list[str]:
        """The names of the processes of ingestion, each of which writes the stream of its name."""
        return [process for source in self.sources.values() for process in source.processes()]

    def input_streams(self, name: str) -> list[str]:
        """The streams whose rows are the input ``name``: those of its shards, or itself."""
        if name in self.sources:
            return self.sources[name].streams()
        return members(name, self.stage_shards.get(name, 1))

    def inputs(self, stage: str) -> list[str]:
        """The streams that ``stage`` reads, as it names them; of an input with shards, all."""
        return [each for name in self.stages[stage].reads for each in self.input_streams(name)]

    def unsplit(self) -> Pipeline:
        """The same with whole stages instead of their shards, for who looks at what the stages
        compute and runs none of them.
        """
        stages: dict[str, Stage] = {}
        for name, stage in self.stages.items():
            if stage.stands_for_all and name not in self.stage_shards:
                whole = whole_of(name)
                stages[whole] = stage.model_copy(update={"name": whole, "share": None})
        return self.model_copy(update={"stages": stages, "stage_shards": {}})

    def order(self) -> list[str]:
        """Stages, each after those that it reads; else in the order of the file."""
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
        """Of each stage what decides about its places, in dependency order."""
        return [self.stages[name].placed() for name in self.order()]

    def nodes(self) -> dict[str, list[str]]:
        """The replicas of each node, as ``STAGE.REPLICA``, as the file says: where they are
        unless they were moved.
        """
        return place(self.placed_stages(), self.named_nodes)

    def places(self) -> Places:
        """The same, to take moves."""
        return Places(self.placed_stages(), self.named_nodes, self.partner_nodes)

    @property
    def partner_nodes(self) -> dict[str, list[str]]:
        """The nodes that other participants run under contracts, and the stages that may be moved
        there.
        """
        partners = {} if self.federation is None else self.federation.partners
        return {f"{partner}.0": stages for partner, stages in partners.items()}

    def audited_stages(self) -> list[str]:
        """Those that partners may run, if there is an auditor who can judge them."""
        if self.federation is None or not self.federation.auditor:
            return []
        traded = {stage for stages in self.federation.partners.values() for stage in stages}
        return sorted(stage for stage in traded if self.stages[stage].ha == "upstream_backup")

    def other_signers(self) -> dict[str, list[str]]:
        """Of each published stream whom its owner has to name
        (``protocol.federation.stream_signers``): who may run its stage beside the owner. Empty
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
        """The columns of published streams, where they are known: of those that an offer makes by
        its terms. The others are in no catalog.
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
        """As the federation has it."""
        return "" if self.federation is None else self.federation.host

    @property
    def offering_nodes(self) -> dict[str, str]:
        """The nodes of participants who run here what they offer, and who that is."""
        owners = {stage.participant for stage in self.stages.values() if stage.offered is not None}
        if not owners:
            return {}
        places = self.places()
        return {
            node: places.owner_of(node) for node in self.nodes() if places.owner_of(node) in owners
        }

    def partner_processes(self) -> list[tuple[str, str]]:
        """(service, name) of every process that is another participant's to run: the nodes of
        partners, and who audits them.
        """
        found = [("processing", node) for node in self.partner_nodes]
        if found and self.federation is not None and self.federation.auditor:
            found.append(("auditor", self.federation.auditor))
        return found

    def processes(self) -> list[tuple[str, str]]:
        """(service, name) of every process, in the order of starting."""
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
        """What each process of delivery delivers, by its name."""
        return {
            process: output for output in self.outputs.values() for process in output.processes()
        }

    def own_processes(self) -> list[tuple[str, str]]:
        """Those that whoever reads the file runs."""
        offering = self.offering_nodes
        if self.host:
            return [("processing", node) for node, owner in offering.items() if owner == self.host]
        return [
            (service, name)
            for service, name in self.processes()
            if service != "processing" or name not in offering
        ]

    def readers(self, stream: str) -> list[str]:
        """Stages that read a stream, in the order of the file."""
        return [name for name in self.stages if stream in self.inputs(name)]
