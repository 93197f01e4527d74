"""Waits of a stage, by its position in the pipeline."""

from __future__ import annotations

from typing import Literal

import pytest

from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline.model import (
    Binding,
    EventTime,
    IdleTimeout,
    LiveSink,
    Output,
    Pipeline,
    Sink,
    Source,
    Stage,
)
from anabranch.pipeline.waits import (
    bound_ms,
    depth,
    describe,
    has_live,
    horizon_buckets,
    known_horizon_buckets,
    normal_ms,
    output_bound_ms,
    output_wait_ms,
    policy,
    quiet_ms,
    strictest_output,
    too_long,
    too_open,
    too_short,
    waits,
)
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.stage.availability import SLACK_MS, Ahead, Policy, waits_of
from anabranch.protocol.stage.scheduling import QUIET_READ_MS, QUIET_UNREAD_MS
from harness import plain_pipelines
from harness.plain_pipelines import stage


def source(name: str, out_of_orderness_ms: int = 0) -> Source:
    record = RecordSchema(name="r", version=1, avro={}, fields=(Field("v", "long"),), schema_id=1)
    return Source(
        name=name,
        topics=[name],
        record=record,
        event_time=EventTime(field=None),
        out_of_orderness_ms=out_of_orderness_ms,
        dead_letter=f"{name}.dead",
    )


def pipeline(
    *stages: Stage, live: str = "", corrected: str = "", max_delay_ms: int = 3_000
) -> Pipeline:
    outputs = {
        name: Output(
            name=name, stage=name, corrected=Sink(topic=name), live=LiveSink(topic=f"{name}.live")
        )
        for name in live.split()
    }
    outputs |= {
        name: Output(name=name, stage=name, corrected=Sink(topic=name))
        for name in corrected.split()
    }
    return plain_pipelines.pipeline(
        *stages,
        bucket_ms=250,
        max_delay_ms=max_delay_ms,
        sources={"s": source("s", 40), "t": source("t", 700)},
        outputs=outputs,
    )


DIAMOND = (
    stage("first", "s"),
    stage("short", "first"),
    stage("long1", "first", "t"),
    stage("long2", "long1"),
    stage("last", "short", "long2"),
)


def test_the_longest_path_counts() -> None:
    found = pipeline(*reversed(DIAMOND), live="last")
    names = ["first", "short", "long1", "long2", "last"]
    assert [depth(found, name) for name in names] == [0, 1, 1, 2, 3]
    ahead = [strictest_output(found, name) for name in names]
    assert [each.height for each in ahead if each is not None] == [4, 2, 3, 2, 1]


def test_a_bucket_takes_its_width_and_the_out_of_orderness_of_the_sources_before() -> None:
    found = pipeline(*DIAMOND, live="last")
    assert [normal_ms(found, name) for name in ("first", "short", "long1", "last")] == [
        290,
        290,
        950 + HOP_MS,
        950 + HOP_MS,
    ], "a hop of first, and of long1"


def test_the_waits_follow() -> None:
    found = pipeline(*DIAMOND, live="last")
    assert waits(found, "short") == waits_of(3_000, 290, 1, 2)
    assert waits(found, "last") == waits_of(3_000, 950 + HOP_MS, 3, 1)


def test_bp4_a_stage_that_nobody_reads_need_not_say_how_far_it_is() -> None:
    found = pipeline(*DIAMOND, live="last", max_delay_ms=9_000)
    assert quiet_ms(found, "last") == QUIET_UNREAD_MS
    assert quiet_ms(found, "short") == QUIET_READ_MS
    published = found.model_copy(update={"publish_ms": {"last": 60_000}})
    assert quiet_ms(published, "last") == QUIET_READ_MS, "somebody may read it"
    impatient = pipeline(stage("only", "s"), live="only", max_delay_ms=500)
    assert quiet_ms(impatient, "only") == waits(impatient, "only").first_ms // 2 < QUIET_UNREAD_MS


def test_live_results_are_seen_downstream_too() -> None:
    found = pipeline(*DIAMOND, stage("apart", "first"), live="long1", corrected="last apart")
    assert [
        has_live(found, name) for name in ("first", "long1", "long2", "short", "last", "apart")
    ] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("on_missing_input", ["process", "delay", "suspend"])
def test_a_stage_does_what_the_file_says_where_somebody_sees_it(
    on_missing_input: Literal["process", "delay", "suspend"],
) -> None:
    entry = stage("one", "s", on_missing_input=on_missing_input)
    assert policy(pipeline(entry, live="one"), "one") is Policy(on_missing_input)
    assert policy(pipeline(entry, corrected="one"), "one") is Policy.SUSPEND, (
        "nobody does: it waits"
    )


def test_people_are_told() -> None:
    stages = (
        stage("a", "s"),
        stage("b", "a", on_missing_input="delay"),
        stage("c", "b", on_missing_input="suspend"),
        stage("d", "b"),
    )
    sentences = describe(pipeline(*stages, live="c"))
    first = waits_of(3_000, 290, 0, 3)
    assert (
        sentences[0]
        == f"stage a: continues without a missing input after {first.first_ms} ms, tentatively;"
        f" then {first.next_ms} ms per bucket"
    )
    assert sentences[1].endswith(f"then {waits_of(3_000, 290, 1, 2).first_ms} ms per bucket")
    assert sentences[2:] == [
        "stage c: waits for missing input without limit (on_missing_input is suspend)",
        "stage d: waits for missing input without limit (no output of it has a live topic)",
        "output c: shows nothing tentative, as its stage waits",
    ]


def bounded(found: Pipeline, **own_ms: int) -> Pipeline:
    """Return the pipeline with these outputs' own bounds."""
    outputs = {
        name: output.model_copy(update={"max_delay_ms": own_ms.get(name)})
        for name, output in found.outputs.items()
    }
    return found.model_copy(update={"outputs": outputs})


CHAIN = (stage("a", "s"), stage("hasty", "a"), stage("patient", "a"), stage("last", "patient"))


def test_av10_a_stage_waits_as_the_strictest_output_behind_it_demands() -> None:
    found = bounded(pipeline(*CHAIN, live="hasty last", corrected="patient"), last=10_000)
    assert strictest_output(found, "a") == Ahead(3_000, 2, "hasty")
    assert waits(found, "a") == waits_of(3_000, 290, 0, 2)
    assert waits(found, "patient") == waits_of(10_000, 290, 1, 2), "on the way to a patient one"
    assert waits(found, "last") == waits_of(10_000, 290, 2, 1)
    far = bounded(pipeline(*CHAIN, live="hasty last"), hasty=3_500)
    assert strictest_output(far, "a") == Ahead(3_000, 3, "last"), "it has 1.2 s less, not 0.6 s"
    published = found.model_copy(update={"publish_ms": {"patient": 60_000}})
    assert strictest_output(published, "patient") == Ahead(3_000, 1, "patient")


def test_what_shows_nothing_tentative_makes_no_stage_hurry() -> None:
    found = pipeline(*CHAIN, live="hasty", corrected="last")
    assert strictest_output(found, "a") == Ahead(3_000, 2, "hasty")
    assert strictest_output(found, "patient") is None
    assert waits(found, "patient") == waits_of(3_000, 290, 1, 1)


def test_an_output_waits_by_its_own_bound_and_not_less_than_its_stage() -> None:
    found = bounded(pipeline(*CHAIN, live="a hasty last"), a=10_000, last=5_000)
    assert output_wait_ms(found, "a") == waits_of(10_000, 290, 0, 1).first_ms
    assert output_wait_ms(found, "hasty") == waits(found, "hasty").first_ms
    assert (output_bound_ms(found, "a"), output_bound_ms(found, "hasty")) == (10_290, 3_290)
    assert bound_ms(found, "a") == 3_290, "the stage itself, as its readers need it"
    for name in ("a", "hasty", "last"):
        assert output_wait_ms(found, name) >= waits(found, name).first_ms


def test_people_are_told_what_each_output_shows() -> None:
    found = bounded(pipeline(*CHAIN, live="a hasty", corrected="last"), a=10_000)
    own_ms, early_ms = output_wait_ms(found, "a"), waits(found, "a").first_ms
    patient, hasty = describe(found)[-2:]
    assert patient == (
        f"output a: max_delay 10000 ms; shows tentative results of a failure that lasts {own_ms} ms"
        f" or longer ({own_ms - early_ms} ms after its stage)"
    )
    assert hasty == (
        "output hasty: max_delay 3000 ms; shows tentative results of a failure that lasts"
        f" {waits(found, 'hasty').first_ms} ms or longer"
    )
    assert not [line for line in too_short(found) if "output" not in line]
    (line,) = too_short(bounded(found, hasty=1_700))
    assert line.startswith("stage a: max_delay of hasty is 1700 ms, but 2 stage(s) from it")


def test_a_path_that_is_too_long_for_the_delay_is_named() -> None:
    chain = (stage("a", "s"), stage("b", "a"), stage("c", "b"))
    enough = SLACK_MS + 4 * HOP_MS
    assert too_short(pipeline(*chain, live="c", max_delay_ms=enough)) == []
    found = too_short(pipeline(*chain, live="c", max_delay_ms=enough - 1))
    assert [sentence.split(":")[0] for sentence in found] == ["stage a"]
    assert f"3 stage(s) from it to the output need {enough} ms" in found[0]
    assert too_short(pipeline(*chain, corrected="c", max_delay_ms=1)) == [], (
        "nobody sees tentative results"
    )


def test_a_stage_whose_results_stop_in_a_long_failure_is_named_with_what_to_change() -> None:
    made = pipeline(
        stage("both", "s", "t"), stage("next", "both"), stage("one", "s"), corrected="next"
    )

    def sentences(idle_ms: int | None, **changes: object) -> list[str]:
        sources = {
            name: source(name).model_copy(
                update={"idle_timeout": IdleTimeout(partition_ms=None, source_ms=idle_ms)}
            )
            for name in ("s", "t")
        }
        return too_long(
            made.model_copy(
                update={"bucket_ms": 500, "partitions": 4, "sources": sources, **changes}
            )
        )

    full_ms = 50_000_000
    (found,) = sentences(None)
    assert found == (
        "stage both: if an input is missing for 13.9 h, or less with several parts in a bucket, new"
        " results stop; a shorter idle_timeout of s, t, as {source: 25000s}, closes the oldest"
        " buckets before"
    )
    assert sentences(full_ms) == [found]
    assert sentences(full_ms - 1) == []
    (twice,) = sentences(None, bucket_ms=1_000)
    assert "27.8 h" in twice


def test_what_another_owner_alone_can_close_is_said() -> None:
    made = pipeline(stage("both", "s", "theirs"), corrected="both")
    record = made.sources["s"].record
    theirs = Binding(name="theirs", pipeline="north", stream="speeds", record=record)
    (found,) = too_long(made.model_copy(update={"bindings": {"theirs": theirs}}))
    assert "idle_timeout of s," in found
    assert found.endswith("; only the owner can close buckets of theirs")


def test_a_source_that_keeps_more_open_than_fits_is_named_with_what_to_change() -> None:
    def sentences(bucket_ms: int, out_of_orderness_ms: int) -> list[str]:
        made = pipeline(stage("a", "s"), corrected="a")
        sources = {"s": source("s", out_of_orderness_ms)}
        return too_open(made.model_copy(update={"bucket_ms": bucket_ms, "sources": sources}))

    (found,) = sentences(50, 86_400_000)
    assert found == (
        "source s: out_of_orderness (86400000 ms) keeps 1728000 buckets of 50 ms open: with data in"
        " all of them that is 1728000 parts or more, and from 930000 on nothing is read. Unless the"
        " source has long pauses, make out_of_orderness 40000000 ms or shorter, or bucket 108 ms or"
        " wider"
    )
    assert sentences(108, 86_400_000) == sentences(50, 40_000_000) == []
    (found,) = sentences(60_000, 300_000_000)
    assert found.endswith("make out_of_orderness 200000000 ms or shorter"), (
        "rounds of reading open parts, too, however wide a bucket is"
    )


def test_a_deep_lattice_is_measured_without_walking_every_path() -> None:
    layers = [[f"s{layer}-{i}" for i in range(3)] for layer in range(25)]
    stages = [
        stage(name, *(layers[n - 1] if n else ["s", "t"]))
        for n, layer in enumerate(layers)
        for name in layer
    ]
    found = pipeline(*stages, live="s24-0")
    assert (
        depth(found, "s24-0"),
        strictest_output(found, "s0-0"),
        normal_ms(found, "s24-0"),
        has_live(found, "s0-0"),
    ) == (24, Ahead(3_000, 25, "s24-0"), 950, True)
    assert not has_live(pipeline(*stages, corrected="s24-0"), "s0-0")
    assert len(too_short(found)) == 3 * 24 - 3 * 2, (
        "all but those with three stages or fewer to the output; of the last layer one is seen"
    )


@pytest.mark.parametrize(
    ("state_horizon_ms", "buckets", "known"), [(None, None, 0), (0, 0, 0), (501, 3, 3)]
)
def test_a_horizon_that_is_not_known_is_none_for_who_begins(
    state_horizon_ms: int | None, buckets: int | None, known: int
) -> None:
    p = pipeline(stage("a", "s").model_copy(update={"state_horizon_ms": state_horizon_ms}))
    assert p.bucket_ms == 250
    assert (horizon_buckets(p, "a"), known_horizon_buckets(p, "a")) == (buckets, known)
