"""The key ``qos`` of an output."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import bound_ms, normal_ms, output_bound_ms, qos_of, worth_less
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.stage.utility import Curve, Qos
from harness.pipeline_files import loaded


def pipeline_in(folder: Path, qos: str = "", live: str = "    live: {topic: live}\n") -> Pipeline:
    return loaded(
        folder,
        "pipeline: p\nsources:\n"
        "  cars: {topics: [cars], record: car.avsc, event_time: {field: n}}\n"
        "stages:\n  first: {reads: cars, transform: stages:first}\n"
        f"outputs:\n  out:\n    stage: first\n    corrected: {{topic: out}}\n{qos}{live}",
    )


def test_functions_are_read_in_per_mille(tmp_path: Path) -> None:
    pipeline = pipeline_in(
        tmp_path,
        "    qos:\n      latency: {0s: 1, 3s: 1.0, 10s: 0}\n"
        "      loss: {0%: 1, 50 %: 0.8, 97.5%: 0.125, 100%: 0}\n",
    )
    latency = Curve(((0, 1_000), (3_000, 1_000), (10_000, 0)))
    loss = Curve(((0, 1_000), (500, 800), (975, 125), (1_000, 0)), is_concave=True)
    assert qos_of(pipeline, "out") == pipeline.outputs["out"].qos == Qos(latency, loss)


def test_a_function_that_is_left_out_makes_no_difference(tmp_path: Path) -> None:
    late = pipeline_in(tmp_path, "    qos: {latency: {0s: 1, 2s: 0}}\n").outputs["out"].qos
    lossy = pipeline_in(tmp_path, "    qos: {loss: {0%: 1, 100%: 0}}\n").outputs["out"].qos
    assert late is not None
    assert lossy is not None
    assert (late.utility(1_000, 0), late.utility(1_000, 1_000)) == (500, 500)
    assert (lossy.utility(10**9, 0), lossy.utility(10**9, 250)) == (1_000, 750)


def test_an_output_whose_bound_is_beyond_the_knee_of_its_latency_is_named(tmp_path: Path) -> None:
    for knee in ("30s", "1s", "0s"):
        qos = "" if knee == "0s" else f", {knee}: 1"
        text = f"    qos: {{latency: {{0s: 1{qos}, 1m: 0}}}}\n"
        pipeline = pipeline_in(tmp_path, text)
        usual_ms, bound_ms = normal_ms(pipeline, "first"), output_bound_ms(pipeline, "out")
        remedy = {
            "1s": f"give the output max_delay: {1_000 - usual_ms}ms",
            "0s": f"they take about {usual_ms} ms without any failure",
        }.get(knee)
        knee_ms = int(knee[:-1]) * 1_000
        assert worth_less(pipeline) == [
            f"output out: its results may come {bound_ms} ms after their bucket, and by its qos"
            f" they are worth less after {knee_ms} ms: {each}"
            for each in [remedy]
            if each is not None
        ]
        if knee == "1s":
            fits = pipeline_in(tmp_path, f"    max_delay: {1_000 - usual_ms}ms\n{text}")
            assert worth_less(fits) == []
    assert worth_less(pipeline_in(tmp_path, "    qos: {loss: {0%: 1, 100%: 0}}\n")) == []
    assert worth_less(pipeline_in(tmp_path)) == []


def test_without_them_the_knee_is_the_delay_that_is_promised(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    knee_ms = normal_ms(pipeline, "first") + pipeline.max_delay_ms
    assert pipeline.outputs["out"].qos is None
    assert qos_of(pipeline, "out") == Qos.usual(knee_ms)
    assert qos_of(pipeline, "out").latency.knee == knee_ms == bound_ms(pipeline, "first")


@pytest.mark.parametrize(
    ("qos", "line", "words"),
    [
        ("{}", 10, "qos: is empty; write for example latency: {0s: 1, 3s: 1, 10s: 0}"),
        ("3", 10, "qos: a mapping is wanted with keys latency, loss, not 3"),
        ("{value: 3}", 10, "qos.value: unknown key; known are latency, loss"),
        ("{latency: 3s}", 10, "qos.latency: a mapping of 1 to 32 points is wanted"),
        ("{loss: {}}", 10, "for example {0%: 1, 50%: 0.8, 100%: 0}"),
        ("{latency: {0s: 1, 3: 0}}", 10, 'qos.latency[3]: 3 has no unit; write for example "3ms"'),
        ("{loss: {0%: 1, 101%: 0}}", 10, "'101%' is no share of rows; write for example 50%"),
        ("{loss: {0: 1, 100%: 0}}", 10, "0 is no share of rows"),
        ("{latency: {0s: true}}", 10, "True is no utility; write a number from 0 to 1"),
        ("{latency: {0s: 1.5}}", 10, "1.5 is no utility"),
        ("{latency: {0s: .nan}}", 10, "nan is no utility"),
        ("{latency: {0s: .inf}}", 10, "inf is no utility"),
        ("{latency: {0s: 0.9999}}", 10, "at most three decimals"),
        ("\n      latency:\n        1s: 1", 12, "qos.latency.1s: the first point must be at 0"),
        ("\n      loss:\n        0%: 1\n        100%: 1\n        50%: 1", 14, "points must ascend"),
        (
            "\n      loss:\n        0%: 1\n        50%: 0.1\n        100%: 0",
            14,
            "qos.loss.100%: the line must not get flatter",
        ),
        ("{loss: {0%: 1, 50%: 0.5}}", 10, "qos.loss.50%: the last point must be at 100%"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, qos: str, line: int, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        pipeline_in(tmp_path, f"    qos: {qos}\n")
    (found,) = str(raised.value).splitlines()
    assert f"pipeline.yaml:{line}: outputs.out.qos" in found
    assert words in found


def test_results_that_lack_no_rows_are_worth_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r":10: outputs.out.qos: .* no live topic"):
        pipeline_in(tmp_path, "    qos: {loss: {0%: 1, 100%: 0}}\n", live="")
