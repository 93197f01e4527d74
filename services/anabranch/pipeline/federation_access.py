"""Who needs which right on the topics of a federation: this participant's broker of contracts, and
its operator, who signs by command.

Which contracts a participant has is in no file: they are named. Each is its parties' and the
auditor's alone; whoever has no right on its topic does not see it. Keys are for all to read, and
for their owner to write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.pipeline.access import UNUSED_GROUP, Operation, Resource, Right
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.identifiers import FederationTopics


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
    broker, operator = f"{before}contract_broker", f"{before}operator"
    return [
        *_of_both(broker, names, contracts),
        *_of_both(operator, names, contracts),
        *_of_operator(operator, names, participant, contracts),
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


def _of_operator(
    principal: str, names: FederationTopics, participant: str, contracts: Sequence[str]
) -> Iterator[Right]:
    """``anabranch keys`` and ``contracts`` make the topics that are missing."""
    for operation in (Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS):
        yield Right(principal, Resource.TOPIC, names.keys(participant), operation, "keys")
    for contract in contracts:
        yield Right(
            principal, Resource.TOPIC, names.contract(contract), Operation.CREATE, "contract"
        )
        for operation in (Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS):
            yield Right(principal, Resource.TOPIC, names.offers(contract), operation, "offers")
