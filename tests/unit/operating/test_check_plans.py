"""The findings about a pipeline's plans, with prepared queries in place of Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from anabranch.codec.record_schema import parse
from anabranch.operating.check import _Plans
from anabranch.pipeline.file import load
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.stage.planner import PlanTraits

PIPELINE = (
    "pipeline: p\nsources:\n  readings: {topics: [readings], record: reading.avsc, event_time:"
    " {field: at, unit: ms}}\nstages:\n  first: {reads: readings, transform: stages:f}\n"
    "  second: {reads: first, transform: stages:g}\noutputs:\n"
    "  out: {stage: second, corrected: {topic: out}}\n"
)
GIVES = pa.schema([("total", pa.int64())])
NORTH = Path(__file__).parents[3] / "examples/remote_definition/north/north.yaml"


@pytest.fixture
def pipeline(tmp_path: Path) -> Any:
    (tmp_path / "reading.avsc").write_text(
        '{"type": "record", "name": "reading", "fields": [{"name": "at", "type": "long"}]}'
    )
    (tmp_path / "stages.py").write_text(
        "def f(readings):\n    return readings\n\ndef g(first):\n    return first\n"
    )
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return load(tmp_path / "pipeline.yaml")


def looked_at(pipeline: Any, build: Any) -> _Plans:
    plans = _Plans(pipeline, build)
    for name in pipeline.order():
        plans.check(pipeline.stages[name])
    return plans


def test_each_stage_reads_what_the_one_before_gives(pipeline: Any) -> None:
    built: dict[str, Mapping[str, pa.Schema]] = {}

    def build(name: str, inputs: Mapping[str, pa.Schema]) -> Any:
        built[name] = inputs
        return SimpleNamespace(
            schema=GIVES, traits=PlanTraits(is_stateful=True, is_batch_safe=True)
        )

    plans = looked_at(pipeline, build)
    assert [list(inputs) for inputs in built.values()] == [["readings"], ["first"]]
    assert built["second"]["first"] == GIVES
    assert (plans.errors, plans.facts) == (
        [],
        [
            f"stage {name}: stateful; several buckets per batch; gives total int64"
            for name in ("first", "second")
        ],
    )


def test_why_a_plan_takes_one_bucket_at_a_time_is_reported(pipeline: Any) -> None:
    traits = PlanTraits(is_stateful=False, is_batch_safe=False, reasons=("First depends",))
    plans = looked_at(pipeline, lambda *_: SimpleNamespace(schema=GIVES, traits=traits))
    first = [fact for fact in plans.facts if fact.startswith("stage first: ")]
    assert first[1] == "stage first: rows of one bucket per batch, because First depends"
    assert "set `bucket` to more than" in first[2]


def test_readers_of_a_stage_that_cannot_run_are_not_checked(pipeline: Any) -> None:
    def build(name: str, _: object) -> Any:
        raise StageFunctionError(f"{name} raised")

    plans = looked_at(pipeline, build)
    assert plans.errors == [
        f"{pipeline.path}:5: stage first: first raised",
        f"{pipeline.path}:6: stage second: not checked, because first cannot run",
    ]
    assert list(plans.schemas) == ["readings"]


def test_an_offered_stage_without_code_has_the_columns_of_its_offer() -> None:
    plans = looked_at(load(NORTH), lambda *_: pytest.fail("there is no code to look at"))
    assert plans.errors == []
    assert ["runs at south; gives " in fact for fact in plans.facts] == [True, True]


def test_a_published_stage_must_give_the_stated_columns(pipeline: Any) -> None:
    traits = PlanTraits(is_stateful=False, is_batch_safe=True)
    record = parse(
        '{"type": "record", "name": "r", "fields": [{"name": "total", "type": "long"}]}', "r"
    )
    stated = pipeline.model_copy(update={"publish_records": {"second": record}})
    assert looked_at(stated, lambda *_: SimpleNamespace(schema=GIVES, traits=traits)).errors == []
    other = pa.schema([("totals", pa.int64())])
    plans = looked_at(stated, lambda *_: SimpleNamespace(schema=other, traits=traits))
    (error,) = plans.errors
    assert error.startswith(
        f"{pipeline.path}:6: stage second: it does not give what publish says: it has no column"
    )
