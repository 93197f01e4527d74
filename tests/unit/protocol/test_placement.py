"""Where replicas run: by rule, as the file says, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.placement import Misplaced, PlacedStage, misplaced, place

CLEAN = PlacedStage("clean", "north", ("0", "1"))
SUMS = PlacedStage("sums", "north", ("0", "1", "2"))
TOLLS = PlacedStage("tolls", "south", ("0",))
STAGES = (CLEAN, SUMS, TOLLS)


def test_all_stages_of_a_participant_share_a_node_for_each_replica() -> None:
    assert place(STAGES, {}) == {
        "north.0": ["clean.0", "sums.0"],
        "north.1": ["clean.1", "sums.1"],
        "north.2": ["sums.2"],
        "south.0": ["tolls.0"],
    }
    assert not list(misplaced(STAGES, {}))


def test_what_the_file_does_not_name_keeps_its_place() -> None:
    named = {"big": ["sums.0"], "north.1": ["sums.2"], "other": ["sums.1"]}
    assert place(STAGES, named) == {
        "north.0": ["clean.0"],
        "north.1": ["clean.1", "sums.2"],
        "big": ["sums.0"],
        "other": ["sums.1"],
        "south.0": ["tolls.0"],
    }
    assert not list(misplaced(STAGES, named))


@pytest.mark.parametrize(
    ("named", "label", "says"),
    [
        ({"big": ["sums.9"]}, "sums.9", "there is no replica sums.9; there are clean.0, clean.1, sums.0"),
        ({"big": ["sums"]}, "sums", "there is no replica"),
        ({"big": ["sums.0"], "small": ["sums.0"]}, "sums.0", "on node big already"),
        ({"big": ["sums.0", "sums.1"]}, "sums.1", "sums.0 and sums.1 are replicas of one stage"),
        ({"north.1": ["sums.0"]}, "sums.1", "sums.0 and sums.1 are replicas of one stage"),
        ({"big": ["sums.0", "tolls.0"]}, "tolls.0", "tolls.0 is a stage of south, sums.0 of north"),
        ({"south.0": ["clean.0"]}, "tolls.0", "a node has one participant"),
    ],
    ids=["no number", "no dot", "twice", "two of one stage", "two by the rule", "two owners", "two owners by the rule"],
)
def test_what_cannot_be_is_said(named: Mapping[str, Sequence[str]], label: str, says: str) -> None:
    (found,) = misplaced(STAGES, named)
    assert found.label == label
    assert says in found.text


LABELS = [label for stage in STAGES for label in stage.labels()]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "north.0", "south.0"]), st.sampled_from(LABELS)), unique_by=lambda pair: pair[1]))
def test_no_two_replicas_of_a_stage_share_a_node_unless_it_is_said(pairs: list[tuple[str, str]]) -> None:
    named: dict[str, list[str]] = {}
    for node, label in pairs:
        named.setdefault(node, []).append(label)
    nodes = place(STAGES, named)
    assert sorted(label for labels in nodes.values() for label in labels) == sorted(LABELS), "N1"
    together = [
        (one, other)
        for labels in nodes.values()
        for one, other in permutations(labels, 2)
        if one.split(".")[0] == other.split(".")[0] or ("tolls.0" in (one, other) and one != other)
    ]
    assert bool(together) == bool(list(misplaced(STAGES, named))), "N2, N3"


def test_the_replica_that_comes_second_is_the_one_that_is_named() -> None:
    assert list(misplaced((CLEAN,), {"x": ["clean.1", "clean.0"]})) == [
        Misplaced(
            "x",
            "clean.1",
            "clean.0 and clean.1 are replicas of one stage, which a node that dies would take along; use another node",
        )
    ]
