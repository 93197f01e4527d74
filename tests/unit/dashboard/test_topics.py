"""The page of a pipeline that is played on a log in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from anabranch.codec.catalog import topic_settings
from anabranch.dashboard.feed import PageFeed
from anabranch.pipeline.model import Scaling
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Move, SplitStep, Step
from anabranch.streams.placement import append_decision
from harness.page_scenes import PageScene, page_of
from harness.waiting import wait_until

SHOWN_S = 60


def shown(feed: PageFeed) -> dict[str, Any]:
    with feed.page() as page:
        return page.whole(feed.clock.now_ms(), feed.clock.monotonic_ms())


def phases(feed: PageFeed, stream: str) -> Counter[str]:
    return Counter(cell[1] for cell in shown(feed)["cells"][stream])


def await_shown(feed: PageFeed, condition: Callable[[dict[str, Any]], object], what: str) -> None:
    wait_until(lambda: condition(shown(feed)), SHOWN_S, what)


def test_a_failure_is_shown_from_the_first_tentative_result_to_the_last_correction() -> None:
    scene = PageScene(past_ms=60_000)
    scene.steps(20)
    scene.cut.add("reports_1")
    scene.steps(20)
    with page_of(scene.pipeline, scene.log) as (feed, _):

        def fails(page: dict[str, Any]) -> bool:
            scene.beats()  # a heartbeat counts for a moment only
            stage, source = (
                page["cards"][f"stream {name}"] for name in ("segment_statistics", "reports_1")
            )
            return bool(
                stage["word"] == "UP_FAILURE"
                and stage["missing"] == ["reports_1"]
                and source["missed_by"] == ["segment_statistics"]
            )

        await_shown(feed, fails, "the state of the stage, and what it misses")
        card = shown(feed)["cards"]["stream segment_statistics"]
        assert card["replicas"][0]["node"] == "north.0"
        assert phases(feed, "segment_statistics").keys() == {"stable", "tentative"}
        scene.cut.clear()
        scene.steps(3)
        wait_until(lambda: phases(feed, "tolls")["undone"], SHOWN_S, "the undo")
        scene.steps(40)
        await_shown(
            feed,
            lambda page: (
                page["cards"]["stream segment_statistics"]["missing"] == []
                and all(
                    phases(feed, stream).keys() == {"stable", "replaced"}
                    for stream in ("segment_statistics", "tolls")
                )
            ),
            "both stages are stable and miss nothing",
        )


def test_a_pipeline_that_is_not_there_yet_is_waited_for() -> None:
    scene = PageScene(past_ms=5_000)
    log = scene.log
    topics = dict(log.topics)
    log.topics.clear()
    with page_of(scene.pipeline, log) as (feed, _):
        await_shown(feed, lambda page: "no topics" in page["contact"], "why nothing is shown")
        log.topics.update(topics)
        scene.step()
        await_shown(
            feed,
            lambda page: page["cells"]["tolls"] and page["contact"] == "",
            "what it is made of, and no complaint",
        )


def test_a_stream_whose_log_is_gone_keeps_no_other_from_being_shown() -> None:
    scene = PageScene(past_ms=5_000)
    missing = scene.pipeline.topic_names.boundaries("reports_0")
    partitions = scene.log.topics.pop(missing)
    with page_of(scene.pipeline, scene.log) as (feed, _):
        await_shown(feed, lambda page: page["cells"]["tolls"], "the other streams")
        assert shown(feed)["cells"]["reports_0"] == []
        scene.log.topics[missing] = partitions
        await_shown(feed, lambda page: page["cells"]["reports_0"], "the stream")


def test_a_process_that_starts_later_is_shown() -> None:
    scene = PageScene(past_ms=5_000)
    late = scene.pipeline.topic_names.control("processing", "tolls.0")
    partitions = scene.log.topics.pop(late)
    with page_of(scene.pipeline, scene.log) as (feed, _):

        def replica() -> dict[str, Any]:
            found: dict[str, Any] = shown(feed)["cards"]["stream tolls"]["replicas"][0]
            return found

        await_shown(feed, lambda page: page["cells"]["tolls"], "the streams")
        assert replica()["word"] != "STABLE"
        scene.log.topics[late] = partitions

        def heard() -> bool:
            scene.beats()
            return bool(replica()["word"] == "STABLE")

        wait_until(heard, SHOWN_S, "its heartbeat")


def test_a_log_that_was_cut_is_read_anew_and_noted() -> None:
    scene = PageScene(past_ms=5_000)
    scene.steps(5)
    with page_of(scene.pipeline, scene.log) as (feed, _):
        await_shown(feed, lambda page: page["cells"]["tolls"], "the stream")
        at = TopicPartition(scene.pipeline.topic_names.boundaries("tolls"), 0)
        scene.log.cut(at, 3)
        await_shown(feed, lambda page: page["events"], "that its log is not what it was")
        assert shown(feed)["events"][0]["stream"] == "tolls"
        await_shown(feed, lambda page: len(page["cells"]["tolls"]) == 2, "what is left")


def test_a_replica_that_begins_is_noted_but_not_one_that_began_long_ago() -> None:
    scene = PageScene(past_ms=5_000)
    with page_of(scene.pipeline, scene.log) as (feed, _):
        await_shown(feed, lambda page: page["cells"]["tolls"], "the stream")
        assert shown(feed)["events"] == []
        scene.begin("tolls", "0")
        await_shown(feed, lambda page: page["events"], "the restart")
        (event,) = shown(feed)["events"]
        assert (event["kind"], event["text"]) == ("restart", "replica 0 began on north.0")


def test_a_decision_of_the_scaler_is_an_event_with_its_reason() -> None:
    """One of before is not, nor a record that has no effect, nor an operator's move."""
    scene = PageScene(past_ms=5_000)
    scaling = Scaling(pool=["north.7"], above_permille=700, for_ms=1, rest_ms=1)
    nodes = scene.pipeline.named_nodes | {"north.7": []}
    scaled = scene.pipeline.model_copy(update={"scaling": scaling, "named_nodes": nodes})
    at = TopicPartition(scaled.topic_names.placement(), 0)
    scene.log.admin().create([topic_settings("placement", at.topic)])
    old = Move("tolls", "0", "north.7", 1, cause="overload", because="long ago")
    append_decision(scene.log, at, old, "move")
    with page_of(scaled, scene.log) as (feed, _):
        await_shown(feed, lambda page: page["cells"]["tolls"], "the streams")
        back = Move("tolls", "0", "north.0", 2)
        late = Move("tolls", "0", "north.7", 2, only_from="north.5", cause="lost", because="late")
        new = Move("tolls", "0", "north.7", 3, only_from="north.0", cause="lost", because="silent")
        for move in (back, late, new):
            append_decision(scene.log, at, move, "move")

        def moves(page: dict[str, Any]) -> list[str]:
            return [each["text"] for each in page["events"] if each["kind"] == "move"]

        await_shown(feed, moves, "the decision")
        assert moves(shown(feed)) == ["replica 0 moves from north.0 to north.7: silent"]


def test_each_step_of_a_split_is_an_event_with_its_reason() -> None:
    """One of before is not, nor a record that has no effect."""
    scene = PageScene(past_ms=5_000)
    stages = dict(scene.pipeline.stages)
    for half in ("tolls.0", "tolls.1"):
        stages[half] = stages["tolls"].model_copy(update={"name": half, "parent": "tolls"})
    split = scene.pipeline.model_copy(update={"stages": stages})
    at = TopicPartition(split.topic_names.placement(), 0)
    scene.log.admin().create([topic_settings("placement", at.topic)])
    old = SplitStep("tolls", Step.WANTED, 1), SplitStep("tolls", Step.WITHDRAWN, 1, 1, "long ago")
    for step in old:
        append_decision(scene.log, at, step, "step")
    with page_of(split, scene.log) as (feed, _):
        await_shown(feed, lambda page: page["cells"]["tolls"], "the streams")
        for step in (
            SplitStep("tolls", Step.WANTED, 2, -1, "decided before the last attempt"),
            SplitStep("tolls", Step.WANTED, 2, 1, "95 %"),
            SplitStep("tolls", Step.WITHDRAWN, 3, 2, "bucket 7 differs", 7),
            SplitStep("tolls", Step.WANTED, 4),
            SplitStep("tolls", Step.CONFIRMED, 5, 4),
        ):
            append_decision(scene.log, at, step, "step")

        def texts(page: dict[str, Any]) -> list[str]:
            return [each["text"] for each in page["events"] if each["kind"] == "move"]

        await_shown(feed, lambda page: len(texts(page)) == 4, "the steps")
        assert sorted(texts(shown(feed))) == [
            "is not split, and nothing has changed: bucket 7 differs",
            "is split: tolls.0 and tolls.1 are proven and take over",
            "is to be split into tolls.0 and tolls.1",
            "is to be split into tolls.0 and tolls.1: 95 %",
        ]
