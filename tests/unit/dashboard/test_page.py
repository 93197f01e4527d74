"""The messages of the page: the full state, then changes, always of bounded size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from anabranch.dashboard.exposition import ProcessMetrics
from anabranch.dashboard.page import EVENTS_MAX, TEXT_MAX, Page
from anabranch.pipeline.file import load
from anabranch.pipeline.model import AgentPolicy, Federation
from anabranch.pipeline.waits import normal_ms
from anabranch.protocol.control.records import Alarm, Heartbeat
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, LogEntry
from anabranch.protocol.stage.utility import IN_PROPORTION, Curve, Qos
from harness.boundary_logs import part, record, started
from harness.page_scenes import TOLL_ROAD

NOW_MS = 1_000_000_000_000


def page() -> Page:
    return Page(load(TOLL_ROAD))


def row(label: str, **more: Any) -> dict[str, Any]:
    service, _, name = label.partition("/")
    return {"service": service, "name": name, "state": "running", "restarts": 0, "cut": None} | more


def beat(stage: str, state: str) -> Heartbeat:
    return Heartbeat("processing", stage, "0", 0, "running", 1, 0, replica_state=state)


def test_a_message_names_only_what_has_changed() -> None:
    shown = page()
    whole = shown.whole(NOW_MS, 0)
    assert {"pipeline", "cards", "hops", "rejected", "cells", "events"} <= whole.keys()
    shown.message(NOW_MS, 0)
    assert shown.message(NOW_MS, 0).keys() == {"seq", "now_ms"}
    shown.show_contact("no answer")
    assert shown.message(NOW_MS, 0)["contact"] == "no answer"
    shown.add_event(NOW_MS, "alarm", "tolls", "text")
    assert [event["text"] for event in shown.message(NOW_MS, 0)["events"]] == ["text"]
    assert "events" not in shown.message(NOW_MS, 0)


def test_numbers_of_messages_grow_and_the_whole_has_that_of_the_last() -> None:
    shown = page()
    assert shown.whole(NOW_MS, 0)["seq"] == 0
    assert [shown.message(NOW_MS, 0)["seq"] for _ in range(3)] == [1, 2, 3]
    assert shown.whole(NOW_MS, 0)["seq"] == 3


def test_cells_are_sent_once_and_are_in_every_full_state() -> None:
    shown, log_state = page(), LogState(("0",))
    first = NOW_MS // 500
    entries: list[LogEntry] = [started(), record(0, 0, first, (part(first, rows=3),))]
    for offset, entry in enumerate(entries):
        shown.take("tolls", entry, log_state.apply(offset, entry), log_state, None)
    assert shown.message(NOW_MS, 0)["cells"] == {
        "tolls": [[first, "stable", None, None, 3, "0", [], 0, [None]]]
    }
    assert "cells" not in shown.message(NOW_MS, 0)
    assert len(shown.whole(NOW_MS, 0)["cells"]["tolls"]) == 1


@pytest.mark.parametrize(
    ("delay_ms", "shed", "worth"),
    [
        (1_000, 0, [1_000, 1_000]),
        (1_000, 400, [600, 900]),
        (4_000, 400, [300, 900]),
        (20_000, 0, [0, 1_000]),
        (-20 * 3_600_000, 0, [None, None]),
    ],
)
def test_a_cell_says_what_its_first_results_are_worth_at_each_output(
    delay_ms: int, shed: int, worth: list[int | None]
) -> None:
    pipeline = load(TOLL_ROAD)
    tolls = pipeline.outputs["tolls"]
    late = Curve(((0, 1_000), (3_000, 1_000), (5_000, 0)))
    patient = Qos(Curve(((0, 1_000), (10**6, 1_000))), Curve(((0, 1_000), (1_000, 750)), True))
    pipeline = pipeline.model_copy(
        update={
            "outputs": {
                "tolls": tolls.model_copy(update={"qos": Qos(late, IN_PROPORTION)}),
                "patient": tolls.model_copy(update={"name": "patient", "qos": patient}),
                "corrected": tolls.model_copy(update={"name": "corrected", "live": None}),
            }
        }
    )
    shown, log_state = Page(pipeline), LogState(("0",))
    first = NOW_MS // 500
    made = replace(record(0, 0, first, (part(first),)), written_ms=first * 500 + delay_ms)
    if shed:
        made = replace(made, kind=BoundaryKind.TENTATIVE, branch=(0, 1), base=first - 1, shed=shed)
    entries: list[LogEntry] = [started(), made]
    for offset, entry in enumerate(entries):
        shown.take("tolls", entry, log_state.apply(offset, entry), log_state, None)
    whole = shown.whole(NOW_MS, 0)
    assert whole["pipeline"]["live_outputs"] == {"tolls": ["tolls", "patient"]}
    assert [cell[-2:] for cell in whole["cells"]["tolls"]] == [[shed, worth]]


def test_cells_of_a_log_that_is_read_again_are_cleared() -> None:
    shown, log_state = page(), LogState(("0",))
    shown.begin_stream("tolls")
    assert "cleared" not in shown.message(NOW_MS, 0)
    entries: list[LogEntry] = [started(), record(0, 0, 5, (part(5),))]
    for offset, entry in enumerate(entries):
        shown.take("tolls", entry, log_state.apply(offset, entry), log_state, None)
    shown.message(NOW_MS, 0)
    shown.begin_stream("tolls")
    assert shown.message(NOW_MS, 0)["cleared"] == ["tolls"]
    assert "cleared" not in shown.message(NOW_MS, 0)
    assert shown.whole(NOW_MS, 0)["cells"]["tolls"] == []


def test_a_replica_that_is_not_heard_any_more_is_silent_but_one_that_ended_is_not() -> None:
    shown = page()
    shown.take_control(beat("tolls", "stable"), NOW_MS, 1_000)
    assert shown.whole(NOW_MS, 2_000)["cards"]["stream tolls"]["word"] == "STABLE"
    assert shown.whole(NOW_MS, 9_000)["cards"]["stream tolls"]["word"] == "silent"
    ended = Heartbeat("processing", "tolls", "0", 0, "ended", 1, 0)
    shown.take_control(ended, NOW_MS, 1_000)
    assert shown.whole(NOW_MS, 9_000)["cards"]["stream tolls"]["word"] == "ended"


def test_what_happens_to_a_process_is_noted_with_its_kind() -> None:
    shown = page()
    label = "ingestion/reports_0"
    for change in (
        {},
        {"cut": "cut off from Kafka"},
        {},
        {"state": "paused"},
        {},
        {"restarts": 1},
        {"restarts": 1, "state": "failed", "error": "why"},
    ):
        shown.show_processes([row(label, **change)], {}, {}, NOW_MS)
    assert [
        (each["kind"], each["text"], each["stream"]) for each in shown.whole(0, 0)["events"]
    ] == [
        ("drill", "cut off from Kafka", "reports_0"),
        ("drill", "link to Kafka healed", "reports_0"),
        ("drill", "paused", "reports_0"),
        ("drill", "resumed", "reports_0"),
        ("failure", "started again, number 1", "reports_0"),
        ("failure", "failed: why", "reports_0"),
    ]


def test_texts_from_outside_and_events_are_bounded() -> None:
    shown = page()
    for number in range(3 * EVENTS_MAX):
        alarm = Alarm("kind", "no such stream", -1, f"{number} " + "x" * 10_000, 0)
        shown.take_control(alarm, NOW_MS, 0)
    events = shown.whole(NOW_MS, 0)["events"]
    assert len(events) == EVENTS_MAX
    assert {len(event["text"]) for event in events} == {TEXT_MAX}
    assert {event["stream"] for event in events} == {""}
    shown.show_processes([row("ingestion/reports_0", error="y" * 10_000)], {}, {}, NOW_MS)
    assert len(shown.whole(NOW_MS, 0)["processes"][0]["reported"]) == TEXT_MAX
    shown.show_contact("z" * 10_000)
    assert len(json.dumps(shown.whole(NOW_MS, 0))) < 200_000


def test_dead_letters_are_counted_without_what_they_hold() -> None:
    shown = page()
    figures = {"ingestion/reports_1": ProcessMetrics(rejected={"late": 3.0, "json": 0.0})}
    shown.show_processes([], figures, {}, NOW_MS)
    assert shown.whole(NOW_MS, 0)["rejected"]["reports_1"]["by_reason"] == {"late": 3}


def test_a_source_with_shards_has_a_card_for_each_and_one_count_of_dead_letters() -> None:
    pipeline = load(TOLL_ROAD)
    sharded = pipeline.sources["reports_1"].model_copy(update={"shards": 2})
    shown = Page(pipeline.model_copy(update={"sources": pipeline.sources | {"reports_1": sharded}}))
    figures = {
        f"ingestion/reports_1.{shard}": ProcessMetrics(rejected={"late": 3.0 + shard})
        for shard in (0, 1)
    }
    shown.show_processes([], figures, {}, NOW_MS)
    shown.take_control(Heartbeat("ingestion", "reports_1.1", "0", 0, "running", 1, 0), NOW_MS, 0)
    found = shown.whole(NOW_MS, 0)
    assert found["rejected"]["reports_1"]["by_reason"] == {"late": 7}
    assert {f"stream reports_1.{shard}" for shard in (0, 1)} <= found["cards"].keys()
    assert "stream reports_1" not in found["cards"]
    words = [found["cards"][f"stream reports_1.{shard}"]["word"] for shard in (0, 1)]
    assert words[0] != words[1], words


def test_an_output_with_shards_has_a_card_and_an_age_for_each() -> None:
    pipeline = load(TOLL_ROAD)
    sharded = pipeline.outputs["tolls"].model_copy(update={"shards": 2})
    shown = Page(pipeline.model_copy(update={"outputs": pipeline.outputs | {"tolls": sharded}}))
    bars = {0.5: 1.0, 1.0: 10.0, float("inf"): 10.0}
    shown.show_processes(
        [], {"delivery/tolls.1": ProcessMetrics(ages={"tolls.1": bars})}, {}, NOW_MS
    )
    shown.take_control(Heartbeat("delivery", "tolls.1", "0", 0, "running", 1, 0), NOW_MS, 0)
    found = shown.whole(NOW_MS, 0)
    words = [found["cards"][f"output tolls.{shard}"]["word"] for shard in (0, 1)]
    assert words[0] != words[1], words
    assert "output tolls" not in found["cards"]
    ages = {hop["name"]: hop["upto_ms"] for hop in found["hops"] if hop["kind"] == "output"}
    assert ages == {"tolls.0": None, "tolls.1": [1_000, 1_000, 1_000]}


def test_batch_times_and_ages_of_outputs_come_from_the_histograms() -> None:
    shown = page()
    bars = {0.5: 1.0, 1.0: 10.0, float("inf"): 10.0}
    figures = {
        "processing/north.0": ProcessMetrics(batches={"tolls.0": bars}),
        "delivery/tolls": ProcessMetrics(ages={"tolls": bars}),
    }
    shown.show_processes([], figures, {}, NOW_MS)
    hops = {(hop["kind"], hop["name"]): hop for hop in shown.whole(NOW_MS, 0)["hops"]}
    assert hops["stage", "tolls"]["batch_ms"] == [1_000, 1_000]
    assert hops["output", "tolls"]["upto_ms"] == [1_000, 1_000, 1_000]


def test_event_times_far_from_the_clock_are_shown_without_ages() -> None:
    shown, log_state = page(), LogState(("0",))
    entries: list[LogEntry] = [started(), record(0, 0, 50, (part(50),))]
    for offset, entry in enumerate(entries):
        shown.take("tolls", entry, log_state.apply(offset, entry), log_state, None)
    whole = shown.whole(NOW_MS, 0)
    assert (whole["is_of_now"], whole["edge"]) == (False, 50)
    hop = next(hop for hop in whole["hops"] if hop["name"] == "tolls")
    assert hop["delays"] is None


def test_what_one_more_unit_of_load_would_cost_is_the_agents_own_cost() -> None:
    policy = AgentPolicy(capacity_units=100, scale_micro=1_000)
    federation = Federation(name="f", participant="north", agent=policy)
    shown = Page(load(TOLL_ROAD).model_copy(update={"federation": federation}))
    assert shown.whole(NOW_MS, 0)["agent"] is None
    detail = {
        "load_units": 50,
        "phase": "idle",
        "tasks": {"north.a": {"place": "here", "units": 50}, "bad": 1},
    }
    shown.show_processes([row("agent/north", detail=detail)], {}, {}, NOW_MS)
    assert shown.whole(NOW_MS, 0)["agent"] == {
        "phase": "idle",
        "load_units": 50,
        "capacity_units": 100,
        "next_unit_micro": 1_000 * 51 // 49 - 1_000,
        "tasks": [["north.a", "here", 50]],
    }
    wrong: list[object] = [{}, {"load_units": "x"}, [], None]
    for hostile in wrong:
        shown.show_processes([row("agent/north", detail=hostile)], {}, {}, NOW_MS)
        assert shown.whole(NOW_MS, 0)["agent"] is None


def test_cards_tell_the_bound_of_what_is_made_and_the_lanes_their_nodes() -> None:
    """The bound counts from a bucket's end: what is normal without a failure, and ``max_delay``."""
    shown = page()
    whole = shown.whole(NOW_MS, 0)
    bounds = {key: card["bound_ms"] for key, card in whole["cards"].items()}
    pipeline = load(TOLL_ROAD)
    assert bounds["stream reports_1"] is None
    for stage in pipeline.stages:
        bound = normal_ms(pipeline, stage) + pipeline.max_delay_ms
        assert bounds[f"stream {stage}"] == bound
        assert {hop["bound_ms"] for hop in whole["hops"] if hop["name"] == stage} == {bound}
    assert bounds["output tolls"] == bounds[f"stream {pipeline.outputs['tolls'].stage}"]
    nodes = whole["pipeline"]["nodes"]
    assert {node for each in nodes.values() for node in each} == set(pipeline.nodes())
    assert set(nodes) == {stage.participant for stage in pipeline.stages.values()}
