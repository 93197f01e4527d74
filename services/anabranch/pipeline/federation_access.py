"""Who needs which right on the topics of a federation: this participant's broker of contracts, its
agent, its operator, who signs by command, and the auditor of what it sells. Its catalog is written
by its broker alone.

Which contracts a participant has is in no file: they are named. Each is its parties' and the
auditor's alone; whoever has no right on its topic does not see it. Keys are for all to read, and
for their owner to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.pipeline.access import UNUSED_GROUP, Operation, Resource, Right
from anabranch.pipeline.model import Pipeline, Stage
from anabranch.pipeline.topic_names import FederationTopics


def federation_rights(
    pipeline: Pipeline, contracts: Sequence[str], *, prefix: str | None = None
) -> list[Right]:
    """The rights of this participant; none where the pipeline file names no federation.

    Args:
        pipeline: A checked one.
        contracts: Ids of its contracts.
        prefix: As of ``access.rights``.
    """
    if pipeline.federation is None:
        return []
    before = f"{pipeline.name}." if prefix is None else prefix
    names, participant = FederationTopics(pipeline.federation.name), pipeline.federation.participant
    dashboard = f"{before}dashboard"
    broker, operator = f"{before}contract_broker", f"{before}operator"
    return [
        *_of_both(broker, names, contracts),
        *_of_both(operator, names, contracts),
        *_of_operator(operator, names, participant, contracts),
        *_of_lookups(operator, names, pipeline),
        Right(broker, Resource.TOPIC, names.catalog(participant), Operation.WRITE, "catalog"),
        *(_of_streams(broker, pipeline) if contracts else ()),
        *(() if pipeline.federation.agent is None else _of_agent(pipeline, before, contracts)),
        *(_of_auditor(pipeline, before, contracts) if pipeline.audited_stages() else ()),
        *_of_dashboard(dashboard, names, contracts),
    ]


def _of_both(principal: str, names: FederationTopics, contracts: Sequence[str]) -> Iterator[Right]:
    yield Right(principal, Resource.TOPIC, names.keys(""), Operation.READ, "keys", prefixed=True)
    for contract in contracts:
        for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.contract(contract), operation, "contract")
    yield Right(
        principal,
        Resource.GROUP,
        UNUSED_GROUP,
        Operation.DESCRIBE,
        "named by every reader, joined by none",
    )


def _of_streams(principal: str, pipeline: Pipeline) -> Iterator[Right]:
    """What streams are metered by, under contracts that this participant may have for them: those
    that it publishes, those of others, and the results of stages that partners may run. Those of a
    partner's broker, too: ``contract_broker.PARTNER`` stands for its principal.
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


def _of_dashboard(
    principal: str, names: FederationTopics, contracts: Sequence[str]
) -> Iterator[Right]:
    """``anabranch ui`` shows what is there."""
    yield Right(principal, Resource.TOPIC, names.keys(""), Operation.READ, "keys", prefixed=True)
    for contract in contracts:
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.contract(contract), operation, "contract")
    for contract in contracts:
        yield Right(principal, Resource.TOPIC, names.offers(contract), Operation.READ, "offers")


def _of_operator(
    principal: str, names: FederationTopics, participant: str, contracts: Sequence[str]
) -> Iterator[Right]:
    """``anabranch keys`` and ``contracts`` make the topics that are missing; ``catalog`` reads all
    catalogs.
    """
    for operation in (Operation.CREATE, Operation.DESCRIBE):
        yield Right(principal, Resource.TOPIC, names.catalog(participant), operation, "catalog")
    for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        yield Right(
            principal, Resource.TOPIC, names.catalog(""), operation, "catalog", prefixed=True
        )
    for operation in (Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS):
        yield Right(principal, Resource.TOPIC, names.keys(participant), operation, "keys")
    for contract in contracts:
        yield Right(
            principal, Resource.TOPIC, names.contract(contract), Operation.CREATE, "contract"
        )
        for operation in (Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.offers(contract), operation, "offers")


def _of_lookups(principal: str, names: FederationTopics, pipeline: Pipeline) -> Iterator[Right]:
    """``anabranch check`` and ``catalog --keep`` on other owners' clusters."""
    for cluster in pipeline.clusters:
        for kind, before, operation in (
            ("keys", names.keys(""), Operation.READ),
            ("catalog", names.catalog(""), Operation.READ),
            ("catalog", names.catalog(""), Operation.DESCRIBE_CONFIGS),
        ):
            yield Right(
                principal, Resource.TOPIC, before, operation, kind, prefixed=True, cluster=cluster
            )


def _of_agent(pipeline: Pipeline, before: str, contracts: Sequence[str]) -> Iterator[Right]:
    """It talks about contracts, writes their ledgers, moves the stages of its own pipeline, and
    reads the logs of those. A partner's agent measures what it runs by the same logs, and hears who
    runs what it may sell on: ``agent.PARTNER`` stands for its principal.
    """
    assert pipeline.federation is not None, "the caller looked"  # noqa: S101
    agent, names = f"{before}agent", FederationTopics(pipeline.federation.name)
    yield from _of_both(agent, names, contracts)
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
    yield from _of_logs(agent, pipeline, stages)
    yield from _of_beats(agent, pipeline, stages)
    partners = pipeline.federation.partners
    for partner, traded in partners.items():
        guest, guests = f"{before}agent.{partner}", [pipeline.stages[stage] for stage in traded]
        yield from _of_logs(guest, pipeline, guests)
        others = {each for other, theirs in partners.items() if other != partner for each in theirs}
        yield from _of_beats(guest, pipeline, [each for each in guests if each.name in others])


def _of_beats(principal: str, pipeline: Pipeline, stages: Sequence[Stage]) -> Iterator[Right]:
    """What replicas say of themselves."""
    for stage in stages:
        label = f"{stage.name}.{stage.replica_ids()[0]}"
        topic = pipeline.topic_names.control("processing", label)
        yield Right(principal, Resource.TOPIC, topic, Operation.READ, "control")


def _of_auditor(pipeline: Pipeline, before: str, contracts: Sequence[str]) -> Iterator[Right]:
    """Another participant's process: it reads what the stages that partners may run read, and what
    stands of them in their logs, and writes into ledgers.
    """
    assert pipeline.federation is not None, "the caller looked"  # noqa: S101
    auditor, names = f"{before}auditor", FederationTopics(pipeline.federation.name)
    yield from _of_both(auditor, names, contracts)
    stages = [pipeline.stages[stage] for stage in pipeline.audited_stages()]
    yield from _of_logs(auditor, pipeline, stages)
    for stream in dict.fromkeys(each for stage in stages for each in pipeline.inputs(stage.name)):
        for writer in pipeline.stream_writers(stream):
            blocks = pipeline.topic_names.blocks(stream, writer)
            yield Right(auditor, Resource.TOPIC, blocks, Operation.READ, "blocks")


def _of_logs(principal: str, pipeline: Pipeline, stages: Sequence[Stage]) -> Iterator[Right]:
    """What load is measured by: the logs of stages and of what they read."""
    streams = dict.fromkeys(
        stream for stage in stages for stream in (stage.name, *pipeline.inputs(stage.name))
    )
    for stream in streams:
        topic, binding = pipeline.topic_names.boundaries(stream), pipeline.bindings.get(stream)
        yield Right(principal, Resource.TOPIC, topic, Operation.READ, "boundaries")
        if binding is not None and binding.participant:
            yield Right(principal, Resource.TOPIC, topic, Operation.DESCRIBE_CONFIGS, "boundaries")
