"""Rights on the topics of a federation: of this participant's contract broker, its agent, its
operator, its dashboard, and the auditor of the stages that it hands over. Only the broker writes
the participant's catalog.

No file lists a participant's contracts, so callers name them. The parties and the auditor of a
contract have rights on its topic; others do not see it. Keys can be read by all and are written by
their owner alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.access.pipeline_acls import Operation, Resource, Right, reader_group
from anabranch.pipeline.model import Pipeline, Stage
from anabranch.pipeline.topic_names import FederationTopics


def federation_rights(
    pipeline: Pipeline, contracts: Sequence[str], *, prefix: str | None = None
) -> list[Right]:
    """Return the rights of this participant; none where the pipeline file names no federation.

    Args:
        pipeline: A checked pipeline.
        contracts: Ids of its contracts.
        prefix: Prefix of the principals' names, as in ``access.rights``.
    """
    if pipeline.federation is None:
        return []
    before = f"{pipeline.name}." if prefix is None else prefix
    names, participant = FederationTopics(pipeline.federation.name), pipeline.federation.participant
    dashboard = f"{before}dashboard"
    broker, operator = f"{before}contract_broker", f"{before}operator"
    return [
        *_contract_rights(broker, names, contracts),
        *_contract_rights(operator, names, contracts),
        *_operator_rights(operator, names, participant, contracts),
        *_reading_rights(operator, "catalog", names.catalog("")),
        # Of ``anabranch check`` and ``catalog --keep`` on other owners' clusters.
        *(
            right
            for cluster in pipeline.clusters
            for kind, before in (("keys", names.keys("")), ("catalog", names.catalog("")))
            for right in _reading_rights(operator, kind, before, cluster)
        ),
        Right(broker, Resource.TOPIC, names.catalog(participant), Operation.WRITE, "catalog"),
        *(_metering_rights(broker, pipeline) if contracts else ()),
        *(() if pipeline.federation.agent is None else _agent_rights(pipeline, before, contracts)),
        *(_auditor_rights(pipeline, before, contracts) if pipeline.audited_stages() else ()),
        *_dashboard_rights(dashboard, names, contracts),
    ]


def _contract_rights(
    principal: str, names: FederationTopics, contracts: Sequence[str]
) -> Iterator[Right]:
    """Yield the rights on the contracts that each kind of process needs that takes part in them."""
    yield from _reading_rights(principal, "keys", names.keys(""))
    for contract in contracts:
        for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.contract(contract), operation, "contract")
    yield reader_group(principal)


def _reading_rights(principal: str, kind: str, before: str, cluster: str = "") -> Iterator[Right]:
    """Yield the rights on all logs of a ``kind``, whose names begin with ``before``: to read them,
    and the setting by which the broker dates them.
    """
    for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        yield Right(
            principal, Resource.TOPIC, before, operation, kind, prefixed=True, cluster=cluster
        )


def _metering_rights(principal: str, pipeline: Pipeline) -> Iterator[Right]:
    """Yield the rights on the boundary logs by which contracts for streams are metered: streams
    that this participant publishes, streams of others that it reads, and results of stages that
    partners may run. A partner's broker has these rights too, as the principal
    ``contract_broker.PARTNER``.
    """
    bound = [name for name, each in pipeline.bindings.items() if not each.cluster]
    partners = {} if pipeline.federation is None else pipeline.federation.partners
    partnered = [stage for stages in partners.values() for stage in stages]
    readers = [
        (principal, dict.fromkeys((*pipeline.publish_ms, *bound, *partnered))),
        *((f"{principal}.{partner}", stages) for partner, stages in partners.items()),
    ]
    for reader, streams in readers:
        for stream in streams:
            topic = pipeline.topic_names.boundaries(stream)
            for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
                yield Right(reader, Resource.TOPIC, topic, operation, "boundaries")


def _dashboard_rights(
    principal: str, names: FederationTopics, contracts: Sequence[str]
) -> Iterator[Right]:
    """Yield the rights by which ``anabranch ui`` shows keys, contracts and offers."""
    yield from _reading_rights(principal, "keys", names.keys(""))
    for contract in contracts:
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.contract(contract), operation, "contract")
    for contract in contracts:
        yield Right(principal, Resource.TOPIC, names.offers(contract), Operation.READ, "offers")


def _operator_rights(
    principal: str, names: FederationTopics, participant: str, contracts: Sequence[str]
) -> Iterator[Right]:
    """Yield the rights by which ``anabranch keys`` and ``contracts`` create missing topics."""
    for operation in (Operation.CREATE, Operation.DESCRIBE):
        yield Right(principal, Resource.TOPIC, names.catalog(participant), operation, "catalog")
    for operation in (Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS):
        yield Right(principal, Resource.TOPIC, names.keys(participant), operation, "keys")
    for contract in contracts:
        yield Right(
            principal, Resource.TOPIC, names.contract(contract), Operation.CREATE, "contract"
        )
        for operation in (Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.offers(contract), operation, "offers")


def _agent_rights(pipeline: Pipeline, before: str, contracts: Sequence[str]) -> Iterator[Right]:
    """Yield the rights of agents. This participant's agent negotiates contracts, writes their
    ledgers, moves the stages of its own pipeline and reads the logs of those. A partner's agent, as
    the principal ``agent.PARTNER``, measures the stages that it runs by the same logs, and reads
    the heartbeats of those that it may sell on.
    """
    assert pipeline.federation is not None, "the caller checks this"  # noqa: S101
    agent, names = f"{before}agent", FederationTopics(pipeline.federation.name)
    yield from _contract_rights(agent, names, contracts)
    for contract in contracts:
        for operation in (Operation.READ, Operation.WRITE):
            yield Right(agent, Resource.TOPIC, names.offers(contract), operation, "offers")
    own = pipeline.topic_names
    for operation in (Operation.READ, Operation.WRITE):
        yield Right(agent, Resource.TOPIC, own.placement(), operation, "placement")
    stages = [
        stage
        for stage in pipeline.stages.values()
        if stage.participant == pipeline.federation.participant
        and not pipeline.reads_elsewhere(stage.name)
    ]
    yield from _log_rights(agent, pipeline, stages)
    yield from _heartbeat_rights(agent, pipeline, stages)
    partners = pipeline.federation.partners
    for partner, traded in partners.items():
        guest, guests = f"{before}agent.{partner}", [pipeline.stages[stage] for stage in traded]
        yield from _log_rights(guest, pipeline, guests)
        others = {each for other, theirs in partners.items() if other != partner for each in theirs}
        yield from _heartbeat_rights(
            guest, pipeline, [each for each in guests if each.name in others]
        )


def _heartbeat_rights(
    principal: str, pipeline: Pipeline, stages: Sequence[Stage]
) -> Iterator[Right]:
    """Yield the right to read the heartbeats of the replicas of ``stages``."""
    for stage in stages:
        label = f"{stage.name}.{stage.replica_ids()[0]}"
        topic = pipeline.topic_names.control("processing", label)
        yield Right(principal, Resource.TOPIC, topic, Operation.READ, "control")


def _auditor_rights(pipeline: Pipeline, before: str, contracts: Sequence[str]) -> Iterator[Right]:
    """Yield the rights of the auditor, another participant's process. It reads the inputs and the
    boundary logs of the stages that partners may run, and writes to ledgers.
    """
    assert pipeline.federation is not None, "the caller checks this"  # noqa: S101
    auditor, names = f"{before}auditor", FederationTopics(pipeline.federation.name)
    yield from _contract_rights(auditor, names, contracts)
    stages = [pipeline.stages[stage] for stage in pipeline.audited_stages()]
    yield from _log_rights(auditor, pipeline, stages)
    for stream in dict.fromkeys(each for stage in stages for each in pipeline.inputs(stage.name)):
        for writer in pipeline.stream_writers(stream):
            blocks = pipeline.topic_names.blocks(stream, writer)
            yield Right(auditor, Resource.TOPIC, blocks, Operation.READ, "blocks")


def _log_rights(principal: str, pipeline: Pipeline, stages: Sequence[Stage]) -> Iterator[Right]:
    """Yield the rights on the logs by which load is measured: those of ``stages`` and of their
    inputs.
    """
    streams = dict.fromkeys(
        stream for stage in stages for stream in (stage.name, *pipeline.inputs(stage.name))
    )
    for stream in streams:
        topic, binding = pipeline.topic_names.boundaries(stream), pipeline.bindings.get(stream)
        yield Right(principal, Resource.TOPIC, topic, Operation.READ, "boundaries")
        # A stream that is verified with published keys needs record times set by the broker: its
        # readers check that setting.
        if binding is not None and binding.participant:
            yield Right(principal, Resource.TOPIC, topic, Operation.DESCRIBE_CONFIGS, "boundaries")
