"""Proof that any one loss is survived, against a model that loses each thing in turn."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from anabranch.protocol.control.k_safety import (
    CopiedTopic,
    ProtectedStage,
    Restart,
    Shortfall,
    gaps,
    unsafe_brokers,
    unsafe_disk,
    unsafe_nodes,
)

NODES = ("p.0", "p.1", "q.0")
POOLS = ((), ("p.7",), ("q.7",), ("p.7", "q.7"))


def stage(name: str, *nodes: str, restart: Restart = Restart.CHECKPOINT) -> ProtectedStage:
    return ProtectedStage(name, nodes[0].partition(".")[0], nodes, restart)


def goes_on(each: ProtectedStage, lost: str, pool: tuple[str, ...]) -> bool:
    """Return whether a process of the stage is left when node ``lost`` is, or one can begin."""
    left = [node for node in each.nodes if node != lost]
    spare = [node for node in pool if node != lost and node[0] == each.participant]
    return bool(left or spare)


def test_a_stage_is_named_exactly_if_the_loss_of_some_node_stops_it() -> None:
    places = [
        nodes
        for nodes in chain.from_iterable(combinations(NODES, size) for size in (1, 2))
        if len({node[0] for node in nodes}) == 1
    ]
    tried = 0
    for first, second, pool in product(places, places, POOLS):
        stages = [stage("a", *first), stage("b", *second)]
        stopped = {
            each.name
            for each in stages
            for lost in (*NODES, *pool)
            if not goes_on(each, lost, pool)
        }
        found = list(unsafe_nodes(stages, pool))
        assert {each.subject for each in found} == stopped, (stages, pool)
        tried += 1
    assert tried == 64


def test_the_remedy_is_one_that_the_mode_allows() -> None:
    (found,) = unsafe_nodes([stage("a", "p.0")], [])
    assert found == Shortfall(
        "a",
        "k_safety is 1, but without node p.0 stage a stops; give it replicas: 2, or the pipeline a"
        " pool: scaling: {nodes: [p.7]}",
    )
    (found,) = unsafe_nodes([stage("a", "p.0", restart=Restart.INPUT)], [])
    assert found.text.endswith(
        "give the pipeline a pool: scaling: {nodes: [p.7]}, or the stage ha: active and replicas: 2"
    )


def test_a_node_of_the_pool_does_not_take_over_its_own_loss() -> None:
    assert [each.subject for each in unsafe_nodes([stage("a", "p.7")], ["p.7"])] == ["a"]
    assert not list(unsafe_nodes([stage("a", "p.7")], ["p.7", "p.8"]))


def test_a_stage_that_goes_on_after_a_gap_is_named() -> None:
    stages = [stage(restart.value, "p.0", "p.1", restart=restart) for restart in Restart]
    assert [each.subject for each in gaps(stages)] == ["nothing"]


def test_a_disk_may_be_lost_with_a_store_or_where_only_input_is_needed() -> None:
    stages = [stage(restart.value, "p.0", "p.1", restart=restart) for restart in Restart]
    (found,) = unsafe_disk(stages, has_store=False)
    assert ": checkpoint; set ANABRANCH_CHECKPOINT_STORE" in found.text
    assert not list(unsafe_disk(stages, has_store=True))
    assert not list(unsafe_disk(stages[1:], has_store=False))


def survives(copies: int, in_sync_min: int) -> bool:
    """Return whether a topic survives the loss of any one copy, whichever have each record."""
    for lost in range(copies):
        left = [copy for copy in range(copies) if copy != lost]
        acknowledged_by = combinations(range(copies), min(in_sync_min, copies))
        if any(not set(holders) & set(left) for holders in acknowledged_by):
            return False
        if len(left) < in_sync_min:
            return False
    return copies > 0


@pytest.mark.parametrize(("copies", "in_sync_min"), [*product(range(1, 6), repeat=2)])
def test_a_topic_is_named_exactly_if_the_loss_of_some_broker_hurts_it(
    copies: int, in_sync_min: int
) -> None:
    found = list(unsafe_brokers([CopiedTopic("t", copies, in_sync_min)]))
    assert bool(found) is not survives(copies, in_sync_min)
    assert all(each.subject == "t" for each in found)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        (CopiedTopic("t", 1, 1), "topic t is lost, as it has 1 of 3 copies; make topics with"),
        (CopiedTopic("t", 2, 2), "or takes no more records, as it has 2 of 3 copies"),
        (CopiedTopic("t", 3, 1), "alone, as it has min.insync.replicas=1 of 3 copies; set it to 2"),
        (CopiedTopic("t", 3, 3), "topic t takes no more records, as it has min.insync.replicas=3"),
        (CopiedTopic("t", 3, 2, elects_unclean=True), "unclean.leader.election.enable=true"),
    ],
)
def test_what_falls_short_of_a_topic_is_said_with_what_to_do(topic: CopiedTopic, says: str) -> None:
    (found,) = unsafe_brokers([topic])
    assert says in found.text
