"""How a topic may differ from what it must be, and what is said of it."""

from __future__ import annotations

import pytest

from anabranch.codec.catalog import BROKERS_OWN, TopicSettings, catalog, topic_settings
from anabranch.codec.topic_rules import (
    USERS_TOO,
    differences,
    kept_ms,
    of_users,
    too_few_copies,
    wrong_for_rejected,
)

WANTED = topic_settings("blocks", "p.s.blocks.0", 2, 3)
APPLIED = {**WANTED.config, "segment.bytes": "1"}


def found(**applied: str) -> list[str]:
    return differences(
        WANTED,
        2,
        3,
        {**APPLIED, **{name.replace("_", "."): value for name, value in applied.items()}},
    )


def test_a_topic_as_it_must_be() -> None:
    assert WANTED.config["min.insync.replicas"] == "2"
    assert found() == []


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("retention.ms", "604800000", "deleted before they are read"),
        ("retention.bytes", "1000", "deleted before they are read"),
        ("cleanup.policy", "compact", "deleted that are needed"),
        ("max.message.bytes", "1048588", "rejected"),
        ("min.insync.replicas", "1", "lost with them"),
        ("unclean.leader.election.enable", "true", "lost with the broker"),
    ],
)
def test_what_gives_less_is_reported_with_what_to_do(setting: str, value: str, says: str) -> None:
    (sentence,) = differences(WANTED, 2, 3, {**APPLIED, setting: value})
    assert sentence.startswith(
        f"topic p.s.blocks.0 has {setting}={value} instead of {WANTED.config[setting]}: "
    )
    assert says in sentence
    assert sentence.endswith(
        f"--entity-name p.s.blocks.0 --add-config {setting}={WANTED.config[setting]}"
    )


def test_a_setting_that_is_not_known_is_reported() -> None:
    applied = {
        name: value
        for name, value in APPLIED.items()
        if name not in ("retention.ms", "cleanup.policy")
    }
    assert len(differences(WANTED, 2, 3, applied)) == 2


def test_more_is_no_difference() -> None:
    assert found(max_message_bytes="99999999", min_insync_replicas="3") == []
    bounded = TopicSettings("t", 1, config={"retention.ms": "1000"})
    assert differences(bounded, 1, None, {"retention.ms": "-1"}) == []
    assert differences(bounded, 1, None, {"retention.ms": "1000"}) == []
    assert differences(bounded, 1, None, {"retention.ms": "999"}) != []


def test_a_list_in_another_order_is_the_same() -> None:
    control = topic_settings("control", "p.control")
    assert differences(control, 1, 1, {**control.config, "cleanup.policy": "delete,compact"}) == []
    (sentence,) = differences(control, 1, 1, {**control.config, "cleanup.policy": "delete"})
    assert sentence.endswith("--add-config cleanup.policy=[compact,delete]")


def test_partitions_and_copies() -> None:
    few, copies = differences(WANTED, 1, 1, APPLIED)
    assert few.startswith("topic p.s.blocks.0 has 1 partitions instead of 2: ")
    assert copies.startswith("topic p.s.blocks.0 has 1 copies instead of 3: ")
    assert differences(WANTED, 2, 5, APPLIED) == []


def test_a_users_topic_is_its_users_business_but_for_what_may_lose_a_record() -> None:
    output = of_users(topic_settings("output", "out", 3, 3), 7)
    assert set(output.config) == USERS_TOO
    assert (
        differences(output, 7, 3, {**output.config, "retention.ms": "1", "max.message.bytes": "1"})
        == []
    )
    assert len(differences(output, 7, 3, {**output.config, "min.insync.replicas": "1"})) == 1


@pytest.mark.parametrize("kind", sorted(catalog().topics))
def test_every_kind_as_it_is_made_has_none(kind: str) -> None:
    topic = topic_settings(kind, "t", 1, 3)
    assert (
        differences(topic, 1 if topic.partitions == 1 else topic.partitions, 3, topic.config) == []
    )


def test_one_copy_is_reported_where_the_cluster_could_keep_more() -> None:
    (sentence,) = too_few_copies({"b": 1, "a": 1, "c": 3}, 3)
    assert sentence.startswith(
        "2 new topics have one copy each, though the cluster has 3 brokers (a, b): "
    )
    assert "--replication 3" in sentence
    (sentence,) = too_few_copies(dict.fromkeys("dcba", 1), 5)
    assert "(a, b, c, ...)" in sentence
    assert too_few_copies({"a": 1}, 2) == []
    assert too_few_copies({"a": 2}, 3) == []
    assert too_few_copies({}, 3) == []


def test_copies_that_are_the_clusters_own_business_are_not_compared() -> None:
    wanted = topic_settings("blocks", "p.s.blocks.0", 2, BROKERS_OWN)
    assert differences(wanted, 2, 1, {**wanted.config, "min.insync.replicas": "1"}) == []


@pytest.mark.parametrize(
    ("applied", "is_wrong"),
    [
        ({}, False),
        ({"cleanup.policy": "delete"}, False),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "delete,compact"}, True),
    ],
)
def test_a_topic_of_rejected_records_is_not_compacted(
    applied: dict[str, str], *, is_wrong: bool
) -> None:
    assert bool(wrong_for_rejected("t", applied)) is is_wrong


@pytest.mark.parametrize(
    ("applied", "found"),
    [({}, None), ({"retention.ms": "-1"}, None), ({"retention.ms": "5"}, 5)],
)
def test_how_long_a_topic_keeps_its_records(applied: dict[str, str], found: int | None) -> None:
    assert kept_ms(applied) == found
