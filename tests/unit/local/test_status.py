"""``local.status``: what a person is told of the detail. The rest is in ``test_cli``."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.local.status import Hop, Row, detail_in_words, hops_of, slowest_in_words
from anabranch.pipeline.file import load

MOVED = {
    "label": "s.0",
    "source": "local.0",
    "target": "local.7",
    "cause": "overload",
    "silent_ms": None,
    "restore_ms": None,
    "catch_up_ms": None,
    "outcome": "withdrawn",
}
SPLIT = {"phase": "wanted", "attempt": 41, "halves": ["s.0", "s.1"]}
LOST = (
    MOVED
    | {"cause": "lost", "silent_ms": 5_200, "restore_ms": 3_000}
    | {
        "catch_up_ms": 800,
        "outcome": "",
    }
)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({}, ""),
        ({"replica_state": "stable", "missing": []}, ""),
        (
            {"replica_state": "up_failure", "missing": ["reports_1", "reports_2"]},
            "tentative: without reports_1, reports_2",
        ),
        ({"replica_state": "up_failure", "missing": []}, "tentative"),
        ({"replica_state": "stabilization", "missing": []}, "correcting"),
        (
            {"replica_state": "up_failure", "missing": [], "shed": 705},
            "tentative; overloaded: 70.5 % of the rows left out",
        ),
        (
            {"replica_state": "stable", "shed": 10, "overload": {"room_left_ms": 5_999_000}},
            "overloaded: 1 % of the rows left out; at this rate new results stop in 99 min",
        ),
        ({"replica_state": "stable", "overload": {"room_left_ms": None}}, ""),
        (
            {"replica_state": "stable", "unread": ["a", "b"]},
            "no room for more of a, b: new results stand still",
        ),
        ({"replica_state": "of a later version"}, ""),
        ({"replica_state": "stable", "given_up_ms": 100}, "results were given up: --json"),
        ({"live": "running", "live_failure": False}, ""),
        ({"live": "running", "live_failure": True}, "live topic tentative"),
        (
            {"live": "running", "live_failure": True, "live_utility": 305},
            "live topic tentative, worth 30.5 %",
        ),
        ({"live": "running", "live_failure": False, "live_utility": 305}, ""),
        ({"live": "waiting: no answer", "live_failure": True}, "live topic waiting: no answer"),
        ({"topics": [], "index": "written"}, ""),
        ({"topics": ["a", "b"]}, "2 settings of topics give less than they must: --json"),
        ({"not_stored": "the store is full"}, "input is kept: the store is full"),
        (
            {"split": SPLIT | {"compared": 3, "needed": 8, "behind_ms": [1_500, None]}},
            (
                "split 41 into s.0 and s.1: 3 of 8 buckets compared, s.0 is 1.5 s behind, s.1 has"
                " not begun"
            ),
        ),
        (
            {"split": SPLIT | {"compared": 0, "needed": 8, "trouble": "no answer"}},
            "split 41 into s.0 and s.1: 0 of 8 buckets compared, no answer",
        ),
        ({"split": SPLIT | {"phase": "confirmed"}}, "split 41 into s.0 and s.1 is confirmed"),
        (
            {"split": SPLIT | {"phase": "withdrawn", "reason": "bucket 7 differs"}},
            "split 41 into s.0 and s.1 was withdrawn: bucket 7 differs",
        ),
        (
            {"not_needed": ["cars.0", "cars.1"]},
            "nobody needs cars.0, cars.1 any more: its number in `shards` may be 0",
        ),
        (
            {
                "outputs_away": [
                    {"output": "tolls", "silent_ms": 7_200_000, "left_ms": 79_200_000},
                    {"output": "cars", "silent_ms": 90_000_000, "left_ms": 0},
                ]
            },
            (
                "output tolls away for 2.0 h, keeps its place for 22.0 h; output cars away for"
                " 25.0 h, has lost its place"
            ),
        ),
        ({"scaling": {"notes": {}, "events": []}}, ""),
        (
            {"scaling": {"notes": {"s.0": "s.0 is overloaded"}, "events": [MOVED, LOST]}},
            (
                "s.0 is overloaded; last move: s.0 from local.0 to local.7 (lost, silent for 5.2 s,"
                " restored in 3.0 s, caught up in 800 ms)"
            ),
        ),
        (
            {"scaling": {"notes": {}, "events": [MOVED]}},
            "last move: s.0 from local.0 to local.7 (overload, withdrawn)",
        ),
        ({"rejected": 0, "late": 2, "reassigned": 2}, ""),
        ({"rejected": 2}, "2 rejected: see tail --rejected"),
        (
            {"rejected": 2, "rejected_kept_ms": 2_592_000_000},
            "2 rejected: see tail --rejected, kept for 30 d",
        ),
        ({"event_time_ends_ms": None}, ""),
        (
            {"event_time_ends_ms": 1_756_555_200_000},
            "idle: event time ends at 2025-08-30 12:00:00.000",
        ),
        (
            {"rejected": 12, "late": 15, "reassigned": 5},
            "12 rejected (10 late): see tail --rejected",
        ),
        (None, ""),
    ],
)
def test_what_is_not_as_it_should_be_is_reported(detail: object, words: str) -> None:
    assert detail_in_words({"detail": detail}) == words


PIPELINE = load(Path(__file__).parents[3] / "examples" / "toll_road" / "pipeline.yaml")


def rows_with(
    statistics: object = 1_500, tolls: object = 2_000, delivery: object = 2_100
) -> list[Row]:
    def row(service: str, name: str, age: object, **detail: object) -> Row:
        return {"service": service, "name": name, "age_ms": age, "detail": detail}

    stages = [
        {"stage": "segment_statistics", "age_ms": statistics},
        {"stage": "tolls", "age_ms": tolls},
    ]
    slower = [{"stage": "segment_statistics", "age_ms": 9_000}, {"stage": "tolls", "age_ms": None}]
    return [
        row("kafka", "kafka", None),
        row("ingestion", "reports_0", 300),
        row("ingestion", "reports_1", 400),
        row("ingestion", "reports_2", None),
        row("processing", "north.0", None, stages=stages),
        row("processing", "north.1", None, stages=slower),
        row("delivery", "tolls", delivery),
    ]


def test_a_hop_adds_what_its_slowest_input_has_not_taken_before() -> None:
    found = hops_of(PIPELINE, rows_with())
    assert found == [
        Hop("ingestion/reports_0", 300, 300),
        Hop("ingestion/reports_1", 400, 400),
        Hop("processing/segment_statistics", 1_500, 1_100),
        Hop("processing/tolls", 2_000, 500),
        Hop("delivery/tolls", 2_100, 100),
    ]
    assert (
        slowest_in_words(found)
        == "slowest hop: processing/segment_statistics adds 1.1 s; a bucket is 2.1 s old when"
        " delivery/tolls closes it"
    )
    assert "processing/tolls adds 6.5 s" in slowest_in_words(
        hops_of(PIPELINE, rows_with(tolls=8_000, delivery=8_100))
    )


def test_nothing_is_reported_of_hops_before_they_are_known_or_of_simulated_time() -> None:
    assert slowest_in_words([]) == ""
    assert slowest_in_words(hops_of(PIPELINE, rows_with(delivery=90_000_000))) == ""
    assert slowest_in_words(hops_of(PIPELINE, rows_with(delivery=-5))) == ""
