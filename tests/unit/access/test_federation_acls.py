"""Rights on the topics of a federation as data; tests/security tries them on a real broker."""

from __future__ import annotations

from anabranch.access.federation_acls import federation_rights
from anabranch.access.pipeline_acls import Operation, Resource, Right
from anabranch.pipeline.model import AgentPolicy, Binding, Federation
from harness import outputs, sources
from harness.plain_pipelines import stage

PIPELINE = outputs.pipeline("p").model_copy(
    update={"federation": Federation(name="tolls", participant="north")}
)


def of(found: list[Right], principal: str, operation: Operation) -> set[str]:
    return {
        f"{right.name}{'*' if right.prefixed else ''}"
        for right in found
        if (right.principal, right.operation) == (principal, operation)
        and right.resource is Resource.TOPIC
    }


def test_a_participant_writes_its_contracts_and_its_own_keys_and_nothing_else() -> None:
    found = federation_rights(PIPELINE, ["c1", "c2"])
    logs = {"tolls.contract.c1", "tolls.contract.c2"}
    assert of(found, "p.contract_broker", Operation.WRITE) == {*logs, "tolls.catalog.north"}
    assert of(found, "p.contract_broker", Operation.READ) == {*logs, "tolls.keys.*"}
    assert of(found, "p.contract_broker", Operation.CREATE) == set()
    assert of(found, "p.operator", Operation.WRITE) == {*logs, "tolls.keys.north"}
    assert of(found, "p.operator", Operation.READ) == {*logs, "tolls.keys.*", "tolls.catalog.*"}
    assert of(found, "p.operator", Operation.CREATE) == {
        *logs,
        "tolls.keys.north",
        "tolls.catalog.north",
        "tolls.offers.c1",
        "tolls.offers.c2",
    }
    offers = {"tolls.offers.c1", "tolls.offers.c2"}
    assert of(found, "p.dashboard", Operation.READ) == {*logs, *offers, "tolls.keys.*"}
    assert of(found, "p.dashboard", Operation.WRITE) == set()
    principals = {right.principal for right in found}
    assert principals == {"p.contract_broker", "p.operator", "p.dashboard"}
    assert len(set(found)) == len(found)


def test_a_broker_reads_the_logs_of_streams_that_may_be_paid_for() -> None:
    bound = {
        name: Binding(
            name=name, pipeline="q", stream=name, record=sources.REPORT, participant="q", **where
        )
        for name, where in {"near": {}, "far": {"cluster": "elsewhere"}}.items()
    }
    names = PIPELINE.model_copy(update={"publish_ms": {"totals": 1}, "bindings": bound})
    found = federation_rights(names, ["c1"])
    logs = {"p.totals.boundaries", "q.near.boundaries"}
    for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
        assert logs <= of(found, "p.contract_broker", operation)
    assert not {name for name in of(found, "p.contract_broker", Operation.READ) if "far" in name}
    assert not logs & of(found, "p.contract_broker", Operation.WRITE)
    without = federation_rights(names, [])
    assert not logs & of(without, "p.contract_broker", Operation.READ)


def test_both_brokers_read_the_results_of_stages_that_a_partner_may_run() -> None:
    federation = Federation(name="tolls", participant="north", partners={"south": ["totals"]})
    names = PIPELINE.model_copy(update={"federation": federation, "publish_ms": {"totals": 1}})
    found = federation_rights(names, ["c1"])
    for principal in ("p.contract_broker", "p.contract_broker.south"):
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS):
            assert "p.totals.boundaries" in of(found, principal, operation)
    assert of(found, "p.contract_broker.south", Operation.READ) == {"p.totals.boundaries"}
    assert of(found, "p.contract_broker.south", Operation.WRITE) == set()
    assert len(set(found)) == len(found)


def test_a_prefix_of_ones_own_and_no_contracts() -> None:
    found = federation_rights(PIPELINE, [], prefix="x-")
    principals = {right.principal for right in found}
    assert principals == {"x-contract_broker", "x-operator", "x-dashboard"}
    assert of(found, "x-contract_broker", Operation.WRITE) == {"tolls.catalog.north"}


def test_an_auditor_reads_what_is_sold_and_writes_into_ledgers_alone() -> None:
    more = stage("more", "totals", ha="upstream_backup", state_horizon_ms=0)
    sold = PIPELINE.model_copy(
        update={
            "stages": {**PIPELINE.stages, "more": more},
            "federation": Federation(
                name="tolls", participant="north", auditor="audit", partners={"south": ["more"]}
            ),
        }
    )
    found = federation_rights(sold, ["c1"])
    assert of(found, "p.auditor", Operation.WRITE) == {"tolls.contract.c1"}
    assert of(found, "p.auditor", Operation.READ) == {
        "tolls.contract.c1",
        "tolls.keys.*",
        "p.more.boundaries",
        "p.totals.boundaries",
        "p.totals.blocks.0",
    }
    assert len(set(found)) == len(found)


def test_a_partner_hears_who_runs_what_it_may_sell_on() -> None:
    totals = PIPELINE.stages["totals"].model_copy(update={"replicas": 1})
    alone = totals.model_copy(update={"name": "alone"})
    partners = {"south": ["totals", "alone"], "west": ["totals"]}
    policy = AgentPolicy(capacity_units=2, scale_micro=1)
    federation = Federation(name="tolls", participant="north", partners=partners, agent=policy)
    sold = PIPELINE.model_copy(
        update={"stages": {"totals": totals, "alone": alone}, "federation": federation}
    )
    found = federation_rights(sold, ["c1"])
    beats = "p.control.processing.totals.0"
    assert of(found, "p.agent", Operation.READ) >= {beats, "p.control.processing.alone.0"}
    for partner in ("south", "west"):
        heard = {
            name for name in of(found, f"p.agent.{partner}", Operation.READ) if "control" in name
        }
        assert heard == {beats}


def test_without_a_federation_there_are_none() -> None:
    assert federation_rights(outputs.pipeline("p"), ["c1"]) == []
