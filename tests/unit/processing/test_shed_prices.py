"""Prices of leaving out rows on a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import loss_curves
from anabranch.processing.shed_prices import PRICES_EVERY_MS, ShedPrices

RECORD = '{"type": "record", "name": "car", "fields": [{"name": "n", "type": "long"}]}'


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """``first`` is read by ``second``; ``whole`` leaves out nothing; ``unseen`` is not live."""
    (tmp_path / "car.avsc").write_text(RECORD)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "pipeline: p\nsources:\n"
        "  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}\n"
        "stages:\n"
        "  first: {reads: cars, sql: q, shed: rows}\n"
        "  second: {reads: first, sql: q, shed: rows}\n"
        "  whole: {reads: cars, sql: q}\n"
        "  unseen: {reads: cars, sql: q, shed: rows}\n"
        "outputs:\n"
        "  a: {stage: first, corrected: {topic: a}, live: {topic: al}}\n"
        "  b:\n    stage: second\n    corrected: {topic: b}\n    live: {topic: bl}\n"
        "    qos: {loss: {0%: 1, 50%: 0.8, 100%: 0}}\n"
        "  c: {stage: whole, corrected: {topic: c}, live: {topic: cl}}\n"
        "  d: {stage: unseen, corrected: {topic: d}}\n"
    )
    return load(path)


def test_a_stage_serves_the_outputs_that_show_its_results(pipeline: Pipeline) -> None:
    found = {
        stage: [curve.value(500) for curve in loss_curves(pipeline, stage)]
        for stage in pipeline.stages
    }
    assert found == {"first": [500, 800], "second": [800], "whole": [500], "unseen": []}


def test_the_cheapest_stage_comes_first(pipeline: Pipeline) -> None:
    prices = ShedPrices(pipeline)
    prices.update({"first": 100, "second": 0, "whole": 0}, 1_000)
    assert prices.table == [], "nothing is measured yet"
    prices.update({"first": 9_999}, 1_000 + PRICES_EVERY_MS - 1)
    assert prices.table == [], "it is too soon"
    prices.update({"first": 2_600, "second": 2_500, "whole": 5_000}, 1_000 + PRICES_EVERY_MS)
    assert prices.table == [
        {
            "stage": "second",
            "kept_permille": 950,
            "utility_lost_permille": 20,
            "busy_saved_us_per_s": 25_000,
        },
        {
            "stage": "first",
            "kept_permille": 950,
            "utility_lost_permille": 70,
            "busy_saved_us_per_s": 25_000,
        },
    ]


def test_a_replica_that_began_anew_or_just_came_is_measured_from_then(pipeline: Pipeline) -> None:
    prices = ShedPrices(pipeline)
    prices.update({"first": 4_000}, 0)
    prices.update({"first": 500, "second": 2_500}, PRICES_EVERY_MS)
    assert prices.table == []
    prices.update({"first": 1_500, "second": 3_500}, 2 * PRICES_EVERY_MS)
    assert [(row["stage"], row["busy_saved_us_per_s"]) for row in prices.table] == [
        ("second", 10_000),
        ("first", 10_000),
    ]
