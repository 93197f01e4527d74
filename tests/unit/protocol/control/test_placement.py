"""Tests of where replicas run: by rule, by the file, and what is impossible. Restart delays grow,
are bounded, and start over after a healthy run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.placement import (
    ENGINE_ENDS_MAX,
    ENGINE_ENDS_TOGETHER_MS,
    HEALTHY_AFTER_MS,
    RESTART_MAX_MS,
    STAGE_FAILED_DELAY_MAX_MS,
    START_MS_MAX,
    AfterEnd,
    AfterMove,
    Backoff,
    BeginRight,
    EngineEnd,
    Misplaced,
    PlacedStage,
    Places,
    after_end,
    after_move,
    ends_deployment,
    has_left,
    misplaced,
    place,
    remembered,
    suspects,
)
from anabranch.protocol.control.records import Move

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


def test_a_half_of_a_shard_is_beside_it_unless_the_file_says_otherwise() -> None:
    halves = [PlacedStage(f"sums.{n}", "north", SUMS.processes, parent="sums") for n in (0, 1)]
    quarter = PlacedStage("sums.00", "north", SUMS.processes, parent="sums.0")
    assert place([SUMS, *halves, quarter], {"big": ["sums.0"], "other": ["sums.1.0"]}) == {
        "big": ["sums.0", "sums.0.0", "sums.00.0"],
        "other": ["sums.1.0"],
        "north.1": ["sums.1", "sums.0.1", "sums.1.1", "sums.00.1"],
        "north.2": ["sums.2", "sums.0.2", "sums.1.2", "sums.00.2"],
    }


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
        (
            {"big": ["sums.9"]},
            "sums.9",
            "there is no replica sums.9; there are clean.0, clean.1, sums.0",
        ),
        ({"big": ["sums"]}, "sums", "there is no replica"),
        ({"big": ["sums.0"], "small": ["sums.0"]}, "sums.0", "on node big already"),
        ({"big": ["sums.0", "sums.1"]}, "sums.1", "sums.0 and sums.1 are replicas of one stage"),
        ({"north.1": ["sums.0"]}, "sums.1", "sums.0 and sums.1 are replicas of one stage"),
        ({"big": ["sums.0", "tolls.0"]}, "tolls.0", "tolls.0 is a stage of south, sums.0 of north"),
        ({"south.0": ["clean.0"]}, "tolls.0", "a node has one participant"),
    ],
    ids=[
        "no number",
        "no dot",
        "twice",
        "two of one stage",
        "two by the rule",
        "two owners",
        "two owners by the rule",
    ],
)
def test_what_cannot_be_is_reported(
    named: Mapping[str, Sequence[str]], label: str, says: str
) -> None:
    (found,) = misplaced(STAGES, named)
    assert found.label == label
    assert says in found.text


def test_a_node_may_be_empty_if_its_name_says_whose_it_is() -> None:
    assert place(STAGES, {"north.9": []})["north.9"] == []
    assert not list(misplaced(STAGES, {"north.9": []}))
    (found,) = misplaced(STAGES, {"spare": []})
    assert found == Misplaced(
        "spare",
        "",
        "it runs nothing, so its name says whose it is: call it PARTICIPANT.spare, with one of"
        " north, south",
    )
    assert not list(misplaced(STAGES, {"spare": ["sums.0"]}))


LABELS = [label for stage in STAGES for label in stage.labels()]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "north.0", "south.0"]), st.sampled_from(LABELS)),
        unique_by=lambda pair: pair[1],
    )
)
def test_no_two_replicas_of_a_stage_share_a_node_unless_the_file_says_so(
    pairs: list[tuple[str, str]],
) -> None:
    named: dict[str, list[str]] = {}
    for node, label in pairs:
        named.setdefault(node, []).append(label)
    nodes = place(STAGES, named)
    assert sorted(label for labels in nodes.values() for label in labels) == sorted(LABELS), "PC1"
    together = [
        (one, other)
        for labels in nodes.values()
        for one, other in permutations(labels, 2)
        if one.split(".")[0] == other.split(".")[0] or ("tolls.0" in (one, other) and one != other)
    ]
    assert bool(together) == bool(list(misplaced(STAGES, named))), "PC2, PC3"


def test_the_replica_that_comes_second_is_the_one_that_is_named() -> None:
    assert list(misplaced((CLEAN,), {"x": ["clean.1", "clean.0"]})) == [
        Misplaced(
            "x",
            "clean.1",
            "clean.0 and clean.1 are replicas of one stage, which a node that dies would take"
            " along; use another node",
        )
    ]


SPARE: dict[str, list[str]] = {"north.9": []}


def move(label: str, node: str) -> Move:
    stage, _, replica = label.rpartition(".")
    return Move(stage, replica, node, 0)


def moved(*moves: Move) -> Places:
    places = Places(STAGES, SPARE)
    for each in moves:
        places.moved(each)
    return places


def test_a_move_from_a_node_counts_only_while_that_has_the_place() -> None:
    """PC7: of two that decide from the same places only the first changes them."""
    places = moved()
    first = replace(move("clean.0", "north.9"), only_from="north.0")
    other = replace(move("clean.0", "north.2"), only_from="north.0")
    assert (places.moved(first), places.moved(other)) == (True, False)
    assert places.node_of("clean.0") == "north.9"
    assert places.moved(replace(other, only_from="north.9"))
    assert set(places.labels()) == set(LABELS)
    assert {"north.0", "north.9", "south.0"} <= set(places.nodes())


def test_a_replica_has_its_place_where_it_was_moved_last() -> None:
    places = moved(move("clean.0", "north.2"), move("clean.0", "north.9"))
    assert places.node_of("clean.0") == "north.9"
    assert (places.of_node("north.0"), places.of_node("north.2"), places.of_node("north.9")) == (
        ["sums.0"],
        ["sums.2"],
        ["clean.0"],
    )
    assert (places.was_moved("clean.0"), places.was_moved("sums.0")) == (True, False)
    assert [
        places.may_run_elsewhere(label, restarts)
        for label in ("clean.0", "sums.0")
        for restarts in (0, 1)
    ] == [True, True, False, True], "PC9"
    assert [places.moved_away(node) for node in ("north.0", "north.2", "north.9", "south.0")] == [
        ["clean.0"],
        ["clean.0"],
        [],
        [],
    ]
    assert places.owner_of("north.9") == "north"


def test_one_that_is_removed_has_no_place_until_it_is_added_again() -> None:
    places = moved(move("clean.0", ""))
    assert (places.node_of("clean.0"), places.of_node("north.0"), places.moved_away("north.0")) == (
        "",
        ["sums.0"],
        ["clean.0"],
    )
    assert places.rejected("clean.0", "") == "clean.0 is removed"
    assert (
        places.rejected("clean.1", "") == "it is the last replica of clean, and a stage needs one"
    )
    assert not places.is_under_way("clean.0", "north.0")
    assert places.moved(move("clean.0", "north.9"))
    assert places.of_node("north.9") == ["clean.0"]
    assert places.is_under_way("clean.0", "north.0")
    assert moved(move("clean.0", "")).rejected("sums.0", "") == "", (
        "of another stage there are others"
    )


@pytest.mark.parametrize(
    ("label", "node", "says"),
    [
        ("clean.9", "north.1", "there is no replica clean.9; there are clean.0, clean.1, sums.0"),
        ("clean", "north.1", "there is no replica clean;"),
        ("clean.0", "north.7", "there is no node north.7; there are north.9, north.0"),
        ("clean.0", "north.0", "clean.0 is on node north.0"),
        (
            "clean.0",
            "north.1",
            (
                "node north.1 has clean.1, and a node that dies would take both replicas along;"
                " move clean.1 away first"
            ),
        ),
        ("clean.0", "south.0", "clean.0 is a stage of north, node south.0 is of south"),
        ("tolls.0", "north.9", "tolls.0 is a stage of south, node north.9 is of north"),
    ],
    ids=[
        "replica",
        "no number",
        "node",
        "there already",
        "a peer",
        "owner",
        "owner of an empty node",
    ],
)
def test_what_cannot_be_moved_is_reported_and_counts_for_nobody(
    label: str, node: str, says: str
) -> None:
    places = moved()
    assert says in places.rejected(label, node)
    assert not places.moved(move(label, node))
    assert [places.of_node(each) for each in place(STAGES, SPARE)] == list(
        place(STAGES, SPARE).values()
    )


def test_pc6_a_move_is_under_way_until_the_replica_begins_where_its_place_is() -> None:
    places = moved(move("clean.0", "north.2"))
    assert [places.is_under_way("clean.0", node) for node in ("north.0", "north.2", "")] == [
        True,
        False,
        False,
    ]
    assert not places.is_under_way("sums.0", "north.2"), "the pipeline file is no move"


def test_pc6_a_withdrawn_move_is_over_and_the_reason_is_known_until_the_next() -> None:
    places = moved(move("clean.0", "north.2"))
    assert not places.withdrawn("clean.0")
    old = "north.0"
    assert places.moved(replace(move("clean.0", old), withdrawn="the store is away"))
    assert places.withdrawn("clean.0") == "the store is away"
    assert not places.is_under_way("clean.0", old)
    assert places.moved(move("clean.0", "north.2"))
    assert not places.withdrawn("clean.0")
    assert not places.moved(replace(move("clean.0", "north.2"), withdrawn="late")), (
        "it changes nothing"
    )
    assert not places.withdrawn("clean.0")


def test_pc6_the_node_that_it_leaves_withdraws_a_move_between_nodes_of_the_pipeline() -> None:
    places = Places(STAGES, SPARE, {"east.0": ["clean"]})
    home = "north.0"
    assert places.withdrawable("clean.0", home) == "", "it has its place there"
    assert places.moved(move("clean.0", "north.2"))
    assert places.withdrawable("clean.0", home) == "north.2"
    assert places.moved(move("clean.0", "east.0"))
    assert [places.withdrawable("clean.0", node) for node in (home, "east.0")] == ["", ""]
    assert places.moved(move("clean.0", home))
    assert places.withdrawable("clean.0", "east.0") == ""
    assert places.moved(move("clean.0", ""))
    assert places.withdrawable("clean.0", home) == "", "it was removed"


def test_pc5_a_node_takes_nothing_back_that_moves_away() -> None:
    begins = {
        (place, on): not has_left(on, "here", has_place=place)
        for place in (True, False)
        for on in ("here", "there", "")
    }
    assert begins == {
        (True, "here"): True,
        (True, "there"): True,
        (True, ""): True,
        (False, "here"): True,
        (False, "there"): False,
        (False, ""): True,
    }


def test_pc5_what_a_node_does_about_a_replica_that_ended() -> None:
    table = {
        (place, fenced, runs_on): after_end(
            has_place=place, is_fenced=fenced, runs_on=runs_on, node="here"
        )
        for place in (True, False)
        for fenced in (True, False)
        for runs_on in ("here", "there", "")
    }
    again = AfterEnd.AGAIN
    gone = AfterEnd.GONE
    end = AfterEnd.END_NODE
    assert table == {
        (True, True, "here"): end,
        (True, True, "there"): again,
        (True, True, ""): end,
        (True, False, "here"): again,
        (True, False, "there"): again,
        (True, False, ""): again,
        (False, True, "here"): end,
        (False, True, "there"): gone,
        (False, True, ""): gone,
        (False, False, "here"): again,
        (False, False, "there"): gone,
        (False, False, ""): gone,
    }


def test_pc5_what_runs_where_its_place_is_no_more_stays() -> None:
    table = {
        (runs, process): after_move(
            runs_here=runs, is_passive=False, is_removed=False, has_process=process
        )
        for runs in (True, False)
        for process in (True, False)
    }
    assert table == {
        (True, True): AfterMove.STAY,
        (True, False): AfterMove.STAY,
        (False, True): AfterMove.STOP_UNLESS_IT_BEGINS,
        (False, False): AfterMove.STOP,
    }


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("process", [True, False])
def test_pc5_what_was_removed_or_has_a_standby_ends(runs: bool, process: bool) -> None:
    for passive, removed in ((True, False), (False, True), (True, True)):
        action = after_move(
            runs_here=runs, is_passive=passive, is_removed=removed, has_process=process
        )
        assert action is AfterMove.STOP


def test_pc8_a_right_to_begin_is_used_or_withdrawn_and_stays_so() -> None:
    used, withdrawn = BeginRight(), BeginRight()
    assert [used.use(), used.withdraw(), used.use()] == [True, False, True]
    assert [withdrawn.withdraw(), withdrawn.use(), withdrawn.withdraw()] == [True, False, True]


NODES = [*place(STAGES, SPARE), "nowhere"]
MOVES = st.lists(
    st.builds(move, st.sampled_from([*LABELS, "clean.9"]), st.sampled_from([*NODES, ""]))
)


@given(MOVES, st.data())
def test_whatever_is_moved_each_replica_has_one_node_that_may_have_it(
    moves: list[Move], data: st.DataObject
) -> None:
    """And who reads the records in two goes, or some of them twice in a row, knows the same."""
    places = moved(*moves)
    there = {node: places.of_node(node) for node in (*NODES[:-1], "")}
    assert sorted(label for labels in there.values() for label in labels) == sorted(LABELS), "PC1"
    removed = there.pop("")
    assert all(set(stage.labels()) - set(removed) for stage in STAGES), (
        "no stage is left without any"
    )
    for node, labels in there.items():
        stages = [label.partition(".")[0] for label in labels]
        assert len(set(stages)) == len(stages), "PC2"
        assert {stage == "tolls" for stage in stages} <= {places.owner_of(node) == "south"}, "PC3"
    again = moved(*(each for each in moves for _ in range(data.draw(st.integers(1, 2)))))
    assert {node: again.of_node(node) for node in there} == there, "PC4"
    assert [again.was_moved(label) for label in LABELS] == [
        places.was_moved(label) for label in LABELS
    ], "PC4"


def test_pc3_on_a_partners_node_run_the_stages_that_may_go_there_and_no_others() -> None:
    places = Places(STAGES, {}, {"east.0": ["clean"]})
    assert places.of_node("east.0") == []
    assert places.owner_of("east.0") == "east"
    assert [places.is_partners(node) for node in ("east.0", "north.0")] == [True, False]
    nodes = ("east.0", "north.0", "west.0", "")
    assert [places.is_run_by(node, "north") for node in nodes] == [False, True, False, False]
    assert places.may_come("east.0") == {"clean"}
    assert places.may_come("north.0") == {"clean", "sums"}
    assert "does not let sums go there" in places.rejected("sums.0", "east.0")
    assert not places.moved(move("sums.0", "east.0"))
    assert places.moved(move("clean.0", "east.0"))
    assert places.node_of("clean.0") == "east.0"
    assert "a node that dies" in places.rejected("clean.1", "east.0")
    assert places.moved(move("clean.0", "north.0"))
    assert places.moved_away("east.0") == ["clean.0"]


def test_delays_double_from_half_a_second_to_thirty() -> None:
    backoff = Backoff()
    delays = [backoff.after_end(1_000) for _ in range(9)]
    assert delays == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert delays[-1] == RESTART_MAX_MS


def test_a_failing_stage_gets_up_to_a_minute() -> None:
    backoff = Backoff()
    assert (
        [backoff.after_end(0, of_function=True) for _ in range(40)][-1]
        == STAGE_FAILED_DELAY_MAX_MS
        == 60_000
    )


@pytest.mark.parametrize("ran_ms", [0, 5_000, HEALTHY_AFTER_MS - 1])
def test_a_spare_process_takes_a_place_at_once_unless_it_ends_again_and_again(ran_ms: int) -> None:
    backoff = Backoff()
    delays = [backoff.after_end(ran_ms, has_spare=True) for _ in range(12)]
    assert delays[:6] == [0, 0, 0, 500, 1_000, 2_000]
    assert delays[-1] == RESTART_MAX_MS
    assert backoff.after_end(HEALTHY_AFTER_MS, has_spare=True) == 0


def test_an_end_without_a_spare_process_waits_as_long_as_if_there_were_never_one() -> None:
    backoff = Backoff()
    assert [backoff.after_end(1_000, has_spare=each) for each in (True, False, True)] == [
        0,
        1_000,
        0,
    ]


def test_a_healthy_minute_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after_end(HEALTHY_AFTER_MS - 1)
    assert backoff.after_end(HEALTHY_AFTER_MS) == 500
    assert backoff.after_end(0) == 1_000


def test_of_ends_of_an_engine_the_last_that_belong_together_are_remembered() -> None:
    ends = tuple(EngineEnd(number, (str(number),)) for number in range(9))
    assert remembered(ends, EngineEnd(10, ())) == (
        *ends[-(ENGINE_ENDS_MAX - 1) :],
        EngineEnd(10, ()),
    )
    late = EngineEnd(ENGINE_ENDS_TOGETHER_MS + 8, ())
    assert remembered(ends, late) == (ends[8], late)
    assert remembered([EngineEnd(99, ())], EngineEnd(10, ())) == (EngineEnd(10, ()),), (
        "a clock that went back"
    )


def test_who_ran_each_time_is_suspected() -> None:
    both, one = EngineEnd(1, ("a", "b")), EngineEnd(2, ("b", "c"))
    assert suspects([both]) == ()
    assert suspects([both, one]) == ("b",)
    assert suspects([both, both]) == ("a", "b")
    assert suspects([both, one, EngineEnd(3, ("a",))]) == ()


@pytest.mark.parametrize(
    ("was_ready", "running_ms", "ends"),
    [
        (False, 0, True),
        (False, START_MS_MAX - 1, True),
        (False, START_MS_MAX, False),
        (True, 0, False),
    ],
)
def test_a_mistake_ends_a_deployment_only_while_it_starts(
    was_ready: bool, running_ms: int, ends: bool
) -> None:
    assert ends_deployment(was_ready=was_ready, running_ms=running_ms) is ends
