"""Rights on the log (ACLs): the least that each process of a pipeline, its users and its operator
need.

Two pieces of data decide: ``schemas/topics`` lists which services read and write each kind of
topic, and the pipeline file says which instance of a service works with which topic. An instance
writes only its own blocks, the boundary log of its own stream and its own outputs; it reads only
the streams that its stage or output reads. A broker with ACLs rejects everything that no right here
allows.

Read, Write and Delete imply Describe on such a broker, and a principal that may write any topic may
be an idempotent producer, so neither right is listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from anabranch.codec.catalog import catalog
from anabranch.pipeline.control_topics import (
    bound_control_topics,
    control_topics,
    reader_control_topics,
)
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.topic_names import FederationTopics

UNUSED_GROUP: Final = "anabranch.unused"
"""Consumer group that every reader names and none joins (``adapters.kafka.settings``). Readers
still need the right to look up its coordinator.
"""

CLOCK_TOPIC: Final = "anabranch.doctor"
"""Topic to which ``anabranch doctor`` writes its one record."""


class Resource(StrEnum):
    """Kind of object that a right applies to."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """Action that a right allows, by the broker's name for it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"
    ALTER = "Alter"


@dataclass(frozen=True, slots=True)
class Right:
    """One ACL: ``principal`` (a user name, without ``User:``) may perform ``operation`` on the
    resource ``name``, or, where ``prefixed``, on every resource whose name begins with ``name``.
    """

    principal: str
    resource: Resource
    name: str
    operation: Operation
    why: str
    """Reason for the right, shown beside it."""
    prefixed: bool = False
    cluster: str = ""
    """Name in the file of the other owner's cluster on which the right is granted; empty: the
    pipeline's own.
    """


@dataclass(frozen=True, slots=True)
class _Topic:
    """Topic and what it belongs to; an empty field means no owner of that kind."""

    kind: str
    name: str
    stream: str = ""
    replica: str = ""
    source: str = ""
    output: str = ""
    process: str = ""
    is_bound: bool = False
    """Whether another pipeline owns the topic: its owner creates and writes it, and grants the
    right to read it.
    """
    cluster: str = ""
    """Cluster of the topic, as in ``Right.cluster``."""
    is_dated: bool = False
    """Whether a reader needs record times set by the broker (LogAppendTime), and so reads the
    topic's settings to check them.
    """


@dataclass(frozen=True, slots=True)
class _Instance:
    """Holder of rights: one replica, one other process or one kind of user, with the streams and
    outputs it works on. The replicas of a node share a principal.
    """

    service: str
    principal: str
    writes: frozenset[str] = frozenset()
    """Streams that it writes."""
    replica: str = ""
    reads: frozenset[str] = frozenset()
    watches: frozenset[str] = frozenset()
    """Streams of which it reads the boundary logs alone: halves of its shard, or the shard of which
    it is a half.
    """
    ends: frozenset[str] = frozenset()
    """Streams of earlier shards, to whose boundary logs it appends the records that end them."""
    source: str = ""
    outputs: frozenset[str] = frozenset()
    """Outputs that it delivers or reads. The name of an output's first process is in the set too
    where it differs from the output's: topics that the first shard alone writes are filed under it.
    """
    hands_over: frozenset[str] = frozenset()
    """Processes of earlier shards of an output. It writes to their topics that they have ended."""
    process: str = ""
    everything: bool = False
    """Whether it works with every topic of the pipeline."""
    scales: bool = True
    """Whether it may work with the log of moves, if its service does at all."""
    answers: bool = True
    """Whether it may write there, if it works with it: of replicas only those of a shard that may
    be split.
    """
    requested_on: frozenset[str] | None = None
    """Control topics that it reads; None: all, if its service reads any."""

    def may_write(self, topic: _Topic) -> bool:
        """Return whether ``topic`` is its own to write. It writes no control topic but its own, so
        that no other process can speak for it.
        """
        if topic.is_bound or (topic.kind == "placement" and not self.answers):
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
        """Return whether it works with ``topic``: one of its inputs, or its own boundary log, from
        which it finds its position.
        """
        if topic.kind == "keys":
            return topic.stream in self.reads | self.writes
        if topic.kind == "boundaries" and topic.stream in self.watches:
            return True
        if topic.is_bound:
            return topic.stream in self.reads
        if topic.kind == "control" and self.requested_on is not None:
            return topic.name in self.requested_on
        own_log = topic.stream in self.writes and not topic.replica
        return self.everything or (
            (not topic.stream or topic.stream in self.reads or own_log)
            and topic.source in ("", self.source)
            and (not topic.output or topic.output in self.outputs)
        )


_CHECKS_SETTINGS: Final = frozenset(
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
"""(service, kind of topic) whose settings the service reads at start. It does not start where a
setting would lose data; the manager reports such settings of internal topics.
"""

_TRIMS: Final = frozenset(
    {("consistency_manager", "blocks"), ("consistency_manager", "boundaries")}
)
"""(service, kind of topic) whose records the service deletes below a trim point or a log snapshot.
The broker's right Delete has no finer form: it also allows deleting the whole topic.
"""


def rights(
    pipeline: Pipeline, *, prefix: str | None = None, by_participant: bool = False
) -> list[Right]:
    """Return the rights of every principal of ``pipeline``, grouped by principal.

    Args:
        pipeline: A checked pipeline.
        prefix: Prefix of the principals' names; None: the pipeline's name and a dot.
        by_participant: One principal for all nodes of a participant instead of one for each node:
            fewer to manage, but a node can then write what the others write.
    """
    before = f"{pipeline.name}." if prefix is None else prefix
    topics = list(_pipeline_topics(pipeline))
    found: dict[Right, None] = {}
    for instance in _instances(pipeline, before, by_participant=by_participant):
        for right in (
            *_topic_rights(instance, topics),
            *_group_and_transaction_rights(pipeline, instance),
        ):
            found[right] = None
    own = [topic for topic in topics if not topic.is_bound]
    elsewhere = [topic for topic in topics if topic.cluster and topic.kind == "boundaries"]
    for right in (
        *_operator_rights(f"{before}operator", own, pipeline.source_streams()),
        *_check_rights(f"{before}operator", elsewhere),
        *_analyst_rights(f"{before}analyst", own),
    ):
        found[right] = None
    unique: dict[Right, Right] = {}
    for right in found:
        unique.setdefault(replace(right, why=""), right)
    return list(unique.values())


def reader_group(principal: str, cluster: str = "") -> Right:
    """Return the right on the group that every reader names, which it needs beside those on its
    topics. ``cluster``: the other owner's cluster that it reads; empty: the pipeline's own.
    """
    return Right(
        principal,
        Resource.GROUP,
        UNUSED_GROUP,
        Operation.DESCRIBE,
        "named by every reader, joined by none",
        cluster=cluster,
    )


def _topic_rights(instance: _Instance, topics: list[_Topic]) -> Iterator[Right]:
    kinds = catalog().topics
    for topic in topics:
        if topic.kind == "placement" and not instance.scales:
            continue
        kind = kinds[topic.kind]
        operations = []
        if instance.service in kind.consumers and instance.may_read(topic):
            operations.append(Operation.READ)
        if instance.service in kind.producers and instance.may_write(topic):
            operations.append(Operation.WRITE)
        checks = (instance.service, topic.kind) in _CHECKS_SETTINGS and not topic.is_bound
        if (checks and (operations or instance.everything)) or (topic.is_dated and operations):
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
            yield reader_group(instance.principal, topic.cluster)


def _group_and_transaction_rights(pipeline: Pipeline, instance: _Instance) -> Iterator[Right]:
    """Yield the rights of ``instance`` on consumer groups and transactional ids."""
    if instance.service == "user":
        # A name has no dot, so a group that begins with the principal and a dot belongs to no
        # other principal: the prefix consumer.out. does not cover consumer.out_eu.
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
    yield reader_group(instance.principal)
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


def _operator_rights(
    principal: str, topics: list[_Topic], sources: Collection[str]
) -> Iterator[Right]:
    """Yield the rights of the operator: to create the topics (``anabranch topics --create``), run
    the doctor, give up sources, move replicas and let stages begin anew (``anabranch give-up``,
    ``move``, ``restate``).
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
    yield reader_group(principal)


def _analyst_rights(principal: str, topics: list[_Topic]) -> Iterator[Right]:
    """Yield the rights of a person who looks at streams (``anabranch tap``): to read their boundary
    logs and blocks.
    """
    for topic in topics:
        if topic.kind in ("boundaries", "blocks"):
            yield Right(principal, Resource.TOPIC, topic.name, Operation.READ, "anabranch tap")
    yield reader_group(principal)


def _check_rights(principal: str, topics: list[_Topic]) -> Iterator[Right]:
    """Yield the rights by which ``anabranch check`` looks up streams on other clusters."""
    for topic in topics:
        yield Right(
            principal,
            Resource.TOPIC,
            topic.name,
            Operation.DESCRIBE,
            topic.kind,
            cluster=topic.cluster,
        )
        yield reader_group(principal, topic.cluster)


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
                requested_on=frozenset(reader_control_topics(pipeline, stream)),
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
                watches=frozenset({*pipeline.halves(stage), *filter(None, [declared.parent])}),
                process=f"processing.{stage}.{process}",
                answers=bool(pipeline.halves(stage)),
            )
    yield from _partner_instances(pipeline, before, by_participant=by_participant)
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
    places = pipeline.places()
    for node in pipeline.reporting_nodes():
        whose = f"participant.{places.owner_of(node)}" if by_participant else f"processing.{node}"
        yield _Instance("processing", f"{before}{whose}", process=f"node.{node}", answers=False)
    yield _Instance(
        "consistency_manager",
        f"{before}consistency_manager",
        everything=True,
        scales=pipeline.scaling is not None or pipeline.may_split,
        answers=pipeline.scaling is not None,
    )
    yield _Instance(
        "dashboard",
        f"{before}dashboard",
        reads=frozenset(b.name for b in pipeline.bindings.values() if not b.cluster),
        everything=True,
        scales=pipeline.scaling is not None,
    )
    for name in pipeline.sources:
        yield _Instance("user", f"{before}producer.{name}", source=name)
    for name, output in pipeline.outputs.items():
        its = frozenset({name, output.processes()[0]})
        yield _Instance("user", f"{before}consumer.{name}", outputs=its)


def _partner_instances(
    pipeline: Pipeline, before: str, *, by_participant: bool
) -> Iterator[_Instance]:
    """Yield the instances of partners' nodes. A partner's node may run any replica of the stages
    that may be moved there, and no other.
    """
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
                    answers=False,
                )


def _pipeline_topics(pipeline: Pipeline) -> Iterator[_Topic]:
    names = pipeline.topic_names
    for source in pipeline.sources.values():
        for topic in source.topics:
            yield _Topic(
                "arrivals" if source.event_time.is_arrival else "input",
                topic,
                source=source.name,
            )
        yield _Topic("dead_letters", source.dead_letter, source=source.name)
    for stream in pipeline.streams():
        yield _Topic("boundaries", names.boundaries(stream), stream)
        for replica in pipeline.stream_writers(stream):
            yield _Topic("blocks", names.blocks(stream, replica), stream, replica)
    for topic, speaker in control_topics(pipeline).items():
        if not speaker.is_manager:
            process = f"node.{speaker.reports}" if speaker.reports else speaker.reader
            yield _Topic("control", topic, process=process)
    for binding in pipeline.bindings.values():
        here = binding.name
        log = _Topic("boundaries", names.boundaries(here), here, is_dated=bool(binding.participant))
        blocks = [
            _Topic("blocks", names.blocks(here, replica), here, replica)
            for replica in binding.replica_ids()
        ]
        control = [
            _Topic("control", topic, here)
            for topic in bound_control_topics(pipeline, [here], binding.cluster)
        ]
        for bound in (log, *blocks, *control):
            yield replace(bound, is_bound=True, cluster=binding.cluster)
    yield from _key_topics(pipeline)
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


def _key_topics(pipeline: Pipeline) -> Iterator[_Topic]:
    """Yield the logs of published keys, all under one prefix. They are needed by readers of a
    stream that is verified with its owner's published keys, and by writers of a stream that others
    verify so.
    """
    if pipeline.federation is None:
        return
    bound = [b.name for b in pipeline.bindings.values() if b.participant]
    for stream in (*bound, *pipeline.publish_ms):
        name = FederationTopics(pipeline.federation.name).keys("")
        cluster = pipeline.cluster_of(stream)
        yield _Topic("keys", name, stream, is_bound=True, cluster=cluster, is_dated=True)
