"""Who needs which right on the log: the least that each process of a pipeline, its users and its
operator can work with.

Made from two pieces of data: ``schemas/topics`` says which service writes and reads each kind of
topic, the pipeline file says which instance of a service has to do with which topic. An instance
writes only its own blocks, its own stream's boundary log and its own outputs; it reads only the
streams that its stage or output reads. What no line here allows, a broker with ACLs rejects.

Read, Write and Delete imply Describe on such a broker, and a writer that may write any topic may be
idempotent; so neither is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from anabranch.codec.catalog import catalog
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.speakers import bound_speakers, speakers
from anabranch.pipeline.topic_names import FederationTopics

UNUSED_GROUP: Final = "anabranch.unused"
"""The consumer group that every reader names and none joins (``adapters.kafka.settings``):
asking where its coordinator is, is a right, too.
"""

CLOCK_TOPIC: Final = "anabranch.doctor"
"""Where ``anabranch doctor`` writes its one record."""


class Resource(StrEnum):
    """What a right is on."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """What a right allows, by the broker's names."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER = "Alter"


@dataclass(frozen=True, slots=True)
class Right:
    """One line: ``principal`` (a user's name, without ``User:``) may do ``operation``;
    ``prefixed``: on all whose names begin with ``name``.
    """

    principal: str
    resource: Resource
    name: str
    operation: Operation
    why: str
    prefixed: bool = False
    cluster: str = ""
    """Of another owner, who grants it, as the file names it; empty: the own one."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic and what it belongs to. Empty: to none."""

    kind: str
    name: str
    stream: str = ""
    replica: str = ""
    source: str = ""
    output: str = ""
    process: str = ""
    is_bound: bool = False
    """Another pipeline's: its owner makes and writes it, and grants the right to read it."""
    cluster: str = ""
    """As of ``Right``."""
    is_dated: bool = False
    """It is read only where the broker sets its times, which is looked at."""


@dataclass(frozen=True, slots=True)
class _Instance:
    """One replica, another process, or one kind of user, and what it has to do with. The
    replicas of a node share a principal.
    """

    service: str
    principal: str
    writes: frozenset[str] = frozenset()
    """Streams whose writer it is."""
    replica: str = ""
    reads: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    """Streams into whose logs it writes that they end."""
    source: str = ""
    outputs: frozenset[str] = frozenset()
    """What it delivers or reads: an output; and its first process, where that is another name, for
    topics that are no other shard's.
    """
    hands_over: frozenset[str] = frozenset()
    """Processes of earlier shards of an output, in whose place it says that they are no more."""
    process: str = ""
    everything: bool = False

    def may_write(self, topic: _Topic) -> bool:
        """Whether ``topic`` is its own: what it says of itself, too, nobody else can say."""
        if topic.is_bound:
            return False
        return self.everything or (
            (
                not topic.stream
                or topic.stream in self.writes
                or (topic.stream in self.ends and not topic.replica)
            )
            and (not topic.replica or topic.replica == self.replica)
            and topic.source in ("", self.source)
            and (not topic.output or topic.output in self.outputs)
            and (topic.process in ("", self.process) or topic.process in self.hands_over)
        )

    def may_read(self, topic: _Topic) -> bool:
        """Whether it works with ``topic``: its inputs, and its own boundary log, by which it
        finds its place.
        """
        if topic.kind == "keys":
            return topic.stream in self.reads | self.writes
        if topic.is_bound:
            return topic.stream in self.reads
        own_log = topic.stream in self.writes and not topic.replica
        return self.everything or (
            (not topic.stream or topic.stream in self.reads or own_log)
            and topic.source in ("", self.source)
            and (not topic.output or topic.output in self.outputs)
        )


_ASKS_SETTINGS: Final = frozenset(
    {
        ("ingestion", "input"),
        ("ingestion", "arrivals"),
        ("ingestion", "dead_letters"),
        ("delivery", "output"),
        ("delivery", "live"),
        ("delivery", "live_upsert"),
        ("delivery", "rejected"),
        *(
            ("consistency_manager", kind)
            for kind in ("boundaries", "blocks", "control", "manager", "fences", "alarms")
        ),
    }
)
"""(service, kind of topic): it does not start where a setting would lose data; the manager
says so of internal ones.
"""

_TRIMS: Final = frozenset(
    {("consistency_manager", "blocks"), ("consistency_manager", "boundaries")}
)
"""Deleting records below a trim point, or a log snapshot, is the broker's right Delete, which
it has in no finer form: who may do this may delete the topic, too.
"""


def rights(
    pipeline: Pipeline, *, prefix: str | None = None, by_participant: bool = False
) -> list[Right]:
    """The rights of every principal of ``pipeline``, by principal.

    Args:
        pipeline: A checked one.
        prefix: Before the names of principals; None: the pipeline's name and a dot.
        by_participant: One principal for all nodes of a participant instead of one for each: fewer
            to manage, but a node can then write what the others write.
    """
    before = f"{pipeline.name}." if prefix is None else prefix
    topics = list(_topics(pipeline))
    found: dict[Right, None] = {}
    for instance in _instances(pipeline, before, by_participant=by_participant):
        for right in (*_of_topics(instance, topics), *_others(pipeline, instance)):
            found[right] = None
    own = [topic for topic in topics if not topic.is_bound]
    elsewhere = [topic for topic in topics if topic.cluster and topic.kind == "boundaries"]
    for right in (
        *_of_operator(f"{before}operator", own, pipeline.source_streams()),
        *_of_checks(f"{before}operator", elsewhere),
    ):
        found[right] = None
    unique: dict[Right, Right] = {}
    for right in found:
        unique.setdefault(replace(right, why=""), right)
    return list(unique.values())


def on_cluster(principal: str, cluster: str) -> Right:
    """What every reader there needs beside the topics."""
    return Right(
        principal,
        Resource.GROUP,
        UNUSED_GROUP,
        Operation.DESCRIBE,
        "named by every reader, joined by none",
        cluster=cluster,
    )


def _of_topics(instance: _Instance, topics: list[_Topic]) -> Iterator[Right]:
    kinds = catalog().topics
    for topic in topics:
        kind = kinds[topic.kind]
        operations = []
        if instance.service in kind.consumers and instance.may_read(topic):
            operations.append(Operation.READ)
        if instance.service in kind.producers and instance.may_write(topic):
            operations.append(Operation.WRITE)
        asks = (instance.service, topic.kind) in _ASKS_SETTINGS and not topic.is_bound
        if (asks and (operations or instance.everything)) or (topic.is_dated and operations):
            operations.append(Operation.DESCRIBE_CONFIGS)
        if (instance.service, topic.kind) in _TRIMS and not topic.is_bound:
            operations.append(Operation.DELETE)
        for operation in operations:
            yield Right(
                instance.principal,
                Resource.TOPIC,
                topic.name,
                operation,
                topic.kind,
                prefixed=topic.kind == "keys",
                cluster=topic.cluster,
            )
        if operations and topic.cluster:
            yield on_cluster(instance.principal, topic.cluster)


def _others(pipeline: Pipeline, instance: _Instance) -> Iterator[Right]:
    """Groups and transactional ids."""
    if instance.service == "user":
        # A name cannot have a dot, so what begins with one and a dot is nobody else's: consumer.out
        # is not consumer.out_eu.
        yield Right(
            instance.principal,
            Resource.GROUP,
            instance.principal,
            Operation.READ,
            "its own consumer group",
        )
        yield Right(
            instance.principal,
            Resource.GROUP,
            f"{instance.principal}.",
            Operation.READ,
            "its other consumer groups",
            prefixed=True,
        )
    yield Right(
        instance.principal,
        Resource.GROUP,
        UNUSED_GROUP,
        Operation.DESCRIBE,
        "named by every reader, joined by none",
    )
    if instance.service == "delivery":
        process = instance.process.removeprefix("delivery.")
        output = pipeline.deliveries()[process]
        halves = {"corrected": process}
        if output.live is not None and process == output.processes()[0]:
            halves["live"] = output.name
        for half, whose in halves.items():
            yield _fencing(pipeline, instance, f"{whose}.{half}", f"fencing of the {half} topic")
        for earlier in sorted(instance.hands_over):
            whose = earlier.removeprefix("delivery.")
            yield _fencing(pipeline, instance, f"{whose}.corrected", "fencing of an earlier shard")


def _fencing(pipeline: Pipeline, instance: _Instance, name: str, why: str) -> Right:
    transactional_id = f"{pipeline.name}.{name}"
    return Right(
        instance.principal, Resource.TRANSACTIONAL_ID, transactional_id, Operation.WRITE, why
    )


def _of_operator(principal: str, topics: list[_Topic], sources: Collection[str]) -> Iterator[Right]:
    """Who makes the topics (``anabranch topics --create``), asks the doctor, gives sources up
    and moves replicas (``anabranch give-up``, ``move``).
    """
    for topic in topics:
        for operation in (Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, topic.name, operation, topic.kind)
        if topic.kind == "rejected":
            why = "a partition for each shard"
            yield Right(principal, Resource.TOPIC, topic.name, Operation.ALTER, why)
        if topic.kind == "placement":
            for operation in (Operation.READ, Operation.WRITE):
                yield Right(principal, Resource.TOPIC, topic.name, operation, "anabranch move")
        if topic.kind == "boundaries" and topic.stream not in sources:
            yield Right(principal, Resource.TOPIC, topic.name, Operation.READ, "anabranch move")
        if topic.kind == "boundaries" and topic.stream in sources:
            for operation in (Operation.READ, Operation.WRITE):
                yield Right(principal, Resource.TOPIC, topic.name, operation, "anabranch give-up")
    for operation in (
        Operation.CREATE,
        Operation.WRITE,
        Operation.READ,
        Operation.DESCRIBE_CONFIGS,
    ):
        yield Right(principal, Resource.TOPIC, CLOCK_TOPIC, operation, "anabranch doctor")
    yield Right(
        principal,
        Resource.GROUP,
        UNUSED_GROUP,
        Operation.DESCRIBE,
        "named by every reader, joined by none",
    )


def _of_checks(principal: str, topics: list[_Topic]) -> Iterator[Right]:
    """``anabranch check`` looks whether streams on other clusters are there."""
    for topic in topics:
        yield Right(
            principal,
            Resource.TOPIC,
            topic.name,
            Operation.DESCRIBE,
            topic.kind,
            cluster=topic.cluster,
        )
        yield on_cluster(principal, topic.cluster)


def _instances(pipeline: Pipeline, before: str, *, by_participant: bool) -> Iterator[_Instance]:
    for source in pipeline.sources.values():
        for stream in source.processes():
            yield _Instance(
                "ingestion",
                f"{before}ingestion.{stream}",
                frozenset({stream}),
                "0",
                reads=frozenset(source.streams()) - {stream},
                ends=frozenset(source.earlier_processes()),
                source=source.name,
                process=f"ingestion.{stream}",
            )
    for node, labels in pipeline.nodes().items():
        for label in labels:
            stage, _, process = label.rpartition(".")
            declared = pipeline.stages[stage]
            writers = declared.replica_ids()
            own = (
                f"{before}participant.{declared.participant}"
                if by_participant
                else f"{before}processing.{node}"
            )
            replica = process if process in writers else writers[0]
            yield _Instance(
                "processing",
                own,
                frozenset({stage}),
                replica,
                frozenset(pipeline.inputs(stage)),
                process=f"processing.{stage}.{process}",
            )
    yield from _of_partners(pipeline, before, by_participant=by_participant)
    for name, output in pipeline.deliveries().items():
        yield _Instance(
            "delivery",
            f"{before}delivery.{name}",
            reads=frozenset({output.stage}),
            outputs=frozenset({output.name, name}),
            hands_over=frozenset(
                f"delivery.{earlier}"
                for earlier in output.earlier_processes()
                if name == output.processes()[0]
            ),
            process=f"delivery.{name}",
        )
    yield _Instance("consistency_manager", f"{before}consistency_manager", everything=True)
    yield _Instance(
        "dashboard",
        f"{before}dashboard",
        reads=frozenset(b.name for b in pipeline.bindings.values() if not b.cluster),
        everything=True,
    )
    for name in pipeline.sources:
        yield _Instance("user", f"{before}producer.{name}", source=name)
    for name, output in pipeline.outputs.items():
        its = frozenset({name, output.processes()[0]})
        yield _Instance("user", f"{before}consumer.{name}", outputs=its)


def _of_partners(pipeline: Pipeline, before: str, *, by_participant: bool) -> Iterator[_Instance]:
    """A partner's node may be any replica of the stages that may be moved there, and no more."""
    for node, stages in pipeline.partner_nodes.items():
        partner = pipeline.places().owner_of(node)
        own = f"participant.{partner}" if by_participant else f"processing.{node}"
        for declared in (pipeline.stages[stage] for stage in stages):
            for replica in declared.replica_ids():
                yield _Instance(
                    "processing",
                    f"{before}{own}",
                    frozenset({declared.name}),
                    replica,
                    frozenset(pipeline.inputs(declared.name)),
                    process=f"processing.{declared.name}.{replica}",
                )


def _topics(pipeline: Pipeline) -> Iterator[_Topic]:
    names = pipeline.topic_names
    for source in pipeline.sources.values():
        for topic in source.topics:
            yield _Topic(
                "arrivals" if source.event_time.field is None else "input",
                topic,
                source=source.name,
            )
        yield _Topic("dead_letters", source.dead_letter, source=source.name)
    for stream in pipeline.streams():
        yield _Topic("boundaries", names.boundaries(stream), stream)
        for replica in pipeline.stream_writers(stream):
            yield _Topic("blocks", names.blocks(stream, replica), stream, replica)
    for topic, speaker in speakers(pipeline).items():
        if not speaker.is_manager:
            yield _Topic("control", topic, process=speaker.reader)
    for binding in pipeline.bindings.values():
        here = binding.name
        log = _Topic("boundaries", names.boundaries(here), here, is_dated=bool(binding.participant))
        blocks = [
            _Topic("blocks", names.blocks(here, replica), here, replica)
            for replica in binding.replica_ids()
        ]
        control = [
            _Topic("control", topic, here)
            for topic in bound_speakers(pipeline, [here], binding.cluster)
        ]
        for bound in (log, *blocks, *control):
            yield replace(bound, is_bound=True, cluster=binding.cluster)
    yield from _keys(pipeline)
    yield _Topic("manager", names.manager())
    yield _Topic("fences", names.fences())
    yield _Topic("placement", names.placement())
    yield _Topic("alarms", names.alarms())
    for name, output in pipeline.outputs.items():
        for process in (*output.earlier_processes(), *output.processes()):
            yield _Topic(
                "progress", names.progress(process), output=name, process=f"delivery.{process}"
            )
        yield _Topic("output", output.corrected.topic, output=name)
        yield _Topic("rejected", output.rejected, output=name)
        if output.live is not None:
            first = output.processes()[0]
            yield _Topic("live_progress", names.live_progress(name), output=first)
            yield _Topic(
                "live_upsert" if output.live.upsert else "live", output.live.topic, output=first
            )


def _keys(pipeline: Pipeline) -> Iterator[_Topic]:
    """The logs of keys, all by one prefix, for who reads a stream by the keys that its owner has
    published, and for who writes one that others read so.
    """
    if pipeline.federation is None:
        return
    bound = [b.name for b in pipeline.bindings.values() if b.participant]
    for stream in (*bound, *pipeline.publish_ms):
        name = FederationTopics(pipeline.federation.name).keys("")
        yield _Topic("keys", name, stream, is_bound=True, cluster=pipeline.cluster_of(stream))
