"""Judgement of a rush: the answer, what a live topic showed first, tables and plots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from anabranch.codec.kept_rows import kept_rows
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.source_columns import source_schema
from anabranch.protocol.stage.kept_rows import salt_of
from anabranch.protocol.stage.utility import Curve, Qos
from experiments.overload import rush as under_test
from experiments.overload import virtual
from experiments.overload.__main__ import COURSE
from experiments.overload.demo import report
from experiments.overload.deployments import SHED, one_stage, scaled_stage, two_stages
from experiments.overload.kept import Passage, is_sound, least_of, result_of
from experiments.overload.report import plots, tables, virtual_plots, virtual_tables
from experiments.overload.rush import (
    MAX_DELAY_MS,
    Breaking,
    Fault,
    Lasting,
    Outcome,
    Shown,
    Truth,
    _Waiting,
    is_steady,
    judge,
)
from harness.load_bench import WAITS

QOS = Qos(Curve(((0, 1_000), (5_000, 1_000), (10_000, 0))), Curve(((0, 1_000), (1_000, 0)), True))


class Message:
    """Record of a topic."""

    def __init__(
        self, end_ms: int, gate: int, result: tuple[int, int, int], **headers: str
    ) -> None:
        self._headers = {"anabranch-event-time": str(end_ms)} | {
            f"anabranch-{name}": value for name, value in headers.items()
        }
        vehicles, trucks, toll = result
        self._value = {"gate": gate, "vehicles": vehicles, "trucks": trucks, "toll": toll}

    def headers(self) -> list[tuple[str, bytes]]:
        return [(name, value.encode()) for name, value in self._headers.items()]

    def value(self) -> bytes:
        return json.dumps(self._value).encode()


def test_the_answer_counts_the_vehicles_of_a_second() -> None:
    truth = Truth()
    for gate, axles, time_ms in ((1, 2, 5_000), (1, 5, 5_999), (2, 2, 5_500), (1, 2, 6_000)):
        truth.add(gate, axles, time_ms)
    assert truth.upto(6_999) == {(6_000, 1): (2, 1, 11), (6_000, 2): (1, 0, 2)}
    assert truth.upto(7_000)[7_000, 1] == (1, 0, 2)
    assert dict(truth.rows) == {6_000: 3, 7_000: 1}


def shown_of(clock: list[int], records: list[tuple[int, str, Any]]) -> Shown:
    """Return what an output has shown: ``records`` of (time, topic, record)."""
    shown = Shown(lambda: clock[0])
    for at_ms, topic, message in records:
        clock[0] = at_ms
        (shown.live if topic == "live" else shown.stable)(message)
    return shown


def rush(
    changes: Mapping[str, tuple[int, int, int]] = MappingProxyType({}),
    least: Callable[[tuple[int, int], int], tuple[int, int, int]] | None = None,
) -> Outcome:
    """Return the outcome of a rush of two seconds, whose corrected results are right but for
    ``changes``.
    """
    truth = Truth()
    for end_ms in range(1_000, 9_000, 1_000):
        for number in range(4):
            truth.add(number % 2, 2 if number < 3 else 5, end_ms - 500)
    right = {0: (2, 0, 4), 1: (2, 1, 11)}
    records: list[tuple[int, str, Any]] = []
    for end_ms in range(1_000, 9_000, 1_000):
        is_rush = 3_000 < end_ms <= 6_000
        for gate, result in right.items():
            first = (1, result[1], 2) if is_rush and gate == 0 else result
            shed = {"kind": "tentative", "shed": "500"} if is_rush else {"kind": "insertion"}
            late_ms = 2_000 if is_rush else 800
            records.append((end_ms + late_ms, "live", Message(end_ms, gate, first, **shed)))
            corrected = changes.get(f"at_{end_ms}_{gate}", result)
            at_ms = max(end_ms, 9_000 if is_rush else 0) + 900
            records.append((at_ms, "stable", Message(end_ms, gate, corrected)))
    records.append((10_000, "live", Message(0, 0, (0, 0, 0), kind="undo")))
    shown = shown_of([0], sorted(records, key=lambda each: each[0]))
    return judge("tolls", QOS, shown, truth, (3_000, 6_000), 8_000, backlog=12, least=least)


def test_a_rush_is_judged() -> None:
    found = rush()
    assert (found.usual_ms, found.rush_ms, found.shed) == (800, 2_000, 500)
    assert (found.right, found.trucks_right) == (0.5, 1.0)
    assert (found.wrong, found.judged, found.backlog, found.kept_per_s) == (0, 16, 12, 2.0)
    assert found.utility == pytest.approx((3 * 500 + 2 * 1_000) / 5)
    assert found.rush_utility == 500
    assert found.delays_in(4) == [0.8, 2.0, 2.0, 2.0]
    assert found.caught_up_s == 1.9


@pytest.mark.parametrize("wrong", [{"at_5000_0": (3, 0, 6)}, {"at_8000_1": (2, 0, 4)}])
def test_a_wrong_corrected_result_is_found(wrong: dict[str, tuple[int, int, int]]) -> None:
    assert rush(wrong).wrong == 1


def test_the_demo_ends_well_only_if_all_is_right() -> None:
    found = rush()
    assert report(found, "rows")[1]
    for wrong in (
        replace(found, wrong=1),
        replace(found, shed=0),
        replace(found, rush_ms=found.usual_ms + MAX_DELAY_MS + 1),
        replace(found, unsound=1),
    ):
        assert not report(wrong, "rows")[1]


def test_in_virtual_time_shedding_keeps_the_bound_and_the_cheaper_stage_sheds() -> None:
    shed, late = (virtual.one(name, sheds=name == "rows", until_s=140) for name in ("rows", "off"))
    assert shed.rush_ms <= shed.usual_ms + WAITS.first_ms < late.rush_ms
    assert shed.utility > late.utility
    assert (shed.forks, late.forks, late.shed) == (1, 0, 0)
    tolls, counts = virtual.two(chooses=True, until_s=140)
    alike = virtual.two(chooses=False, until_s=140)
    assert tolls.shed < 500
    assert counts.shed > 900
    assert tolls.utility + counts.utility > sum(each.utility for each in alike)
    blocks = virtual_tables([late, shed], {"chosen": [tolls, counts]})
    assert blocks["virtual-one"].count("\n") == 3
    assert "| chosen | tolls |" in blocks["virtual-two"]
    drawn = virtual_plots([late, shed], {"chosen": [tolls, counts]})
    assert "counts, chosen" in drawn["overload-two"]


@pytest.mark.parametrize("shed", SHED)
def test_the_pipelines_are_valid(tmp_path: Path, shed: str) -> None:
    stage = load(one_stage(tmp_path / "one", shed)).stages["tolls"]
    assert stage.shed.kind == shed
    assert list(load(two_stages(tmp_path / "two")).stages) == ["tolls", "counts"]
    scaled = load(scaled_stage(tmp_path / "scaled"))
    assert scaled.halves("charged") == ["charged.0", "charged.1"]
    assert scaled.max_delay_ms == MAX_DELAY_MS


def test_a_rush_begins_after_results_that_come_steadily() -> None:
    clock = [0]
    ends = range(1_000, 12_000, 1_000)
    shown = shown_of(
        clock,
        [
            (end_ms + late_ms, "live", Message(end_ms, 0, (1, 0, 2), kind="insertion"))
            for end_ms, late_ms in zip(ends, (2_900, 2_500, 900, *([700] * 8)), strict=True)
        ],
    )
    assert is_steady(shown)
    clock[0] += 5_000
    assert not is_steady(shown), "none come any more"
    steady = Lasting(4)
    assert [at_s for at_s in range(12) if steady.holds(at_s, is_so=at_s not in (0, 3))] == [
        8,
        9,
        10,
        11,
    ]


def test_the_page_says_until_when_rows_were_left_out_beside_a_split() -> None:
    found = replace(rush(), decided_s=1.8, split_s=2.6)
    assert found.shed_until_s == 3.0, "the window that ends at 6 000 ms"
    calm = replace(found, shares=((-1.0, 700), (1.0, 0)))
    assert (found.shed_from_s, calm.shed_from_s, calm.shed_until_s) == (1.0, 0, 0)
    blocks = tables({"rows": [rush()], "scaled": [found]}, COURSE, "today")
    assert blocks["one"].count("| rows |") == 1
    assert "| rows | 0.8 s | 2.0 s | 4.8 s | 50 % |" in blocks["one"]
    assert "| 1 s | 2 s | 3 s | 3 s | 0 of 16 |" in blocks["scaled"]
    assert "never" in tables({"scaled": [rush()]}, COURSE, "today")["scaled"]
    assert "scaled" not in plots({"rows": [rush()], "scaled": [found]})["overload-measured"]


PASSAGES = [
    Passage(number % 5, 7_919 * number, 5 if number % 7 == 0 else 2, 1_000 + number)
    for number in range(900)
]
"""All in the window that ends at 2 000 ms."""


def kept_of(pipeline: Pipeline, kept: int) -> list[Passage]:
    """Return the passages that a reader keeps of a block of all of them, as the stage has it read
    them.
    """
    schema = source_schema(pipeline, "passages")
    rows = [dict(zip(schema.names, (*each, each.time_ms), strict=True)) for each in PASSAGES]
    key = pipeline.stages["tolls"].shed.by["passages"]
    table = kept_rows(pa.Table.from_pylist(rows, schema), key, salt_of("tolls"), kept)
    return [Passage(*list(row.values())[:-1]) for row in table.to_pylist()]


@pytest.mark.parametrize("shed", ["rows", "keys"])
def test_a_result_is_made_from_at_least_the_rows_that_are_kept_at_its_share(
    tmp_path: Path, shed: str
) -> None:
    pipeline = load(one_stage(tmp_path, shed))
    least = least_of(pipeline, "tolls", PASSAGES, 1_000)
    assert least is not None
    found = {
        kept: [
            result_of([each for each in kept_of(pipeline, kept) if each.gate == gate])
            for gate in range(5)
        ]
        for kept in (0, 400, 700, 1_000)
    }
    assert len({tuple(each) for each in found.values()}) == 4
    for kept, results in found.items():
        assert results == [least((2_000, gate), 1_000 - kept) for gate in range(5)]
    for gate in range(5):
        low, some, whole = (found[kept][gate] for kept in (400, 700, 1_000))
        assert is_sound(some, low, whole)
        assert not is_sound((whole[0] + 1, whole[1], whole[2] + 2), low, whole)
    assert any(found[400][gate] != (0, 0, 0) for gate in range(5)), "rows are kept"


def test_the_first_results_of_a_rush_are_judged_by_the_rows_that_were_kept() -> None:
    def least(window: tuple[int, int], shed: int) -> tuple[int, int, int]:
        return (1, window[1], 2) if shed == 500 else (2, window[1], 4 + 7 * window[1])

    assert rush(least=least).unsound == 0
    assert rush(least=lambda window, shed: (2, 0, 4)).unsound == 3, "those of gate 0 in the rush"
    assert rush().unsound is None
    page = tables({"rows": [replace(rush(), unsound=3)]}, COURSE, "today")["one"]
    assert "0 of 16, 3 first results |" in page


def test_rows_that_a_function_chooses_are_not_known(tmp_path: Path) -> None:
    pipeline = load(one_stage(tmp_path, "transform"))
    assert least_of(pipeline, "tolls", PASSAGES, 1_000) is None


class Deployed:
    """Deployment that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def kill(self, title: str) -> None:
        self.done.append(("kill", title))

    def drill(self, *words: str) -> None:
        self.done.append(words)


@pytest.mark.parametrize(
    ("fault", "in_rush", "in_corrections"),
    [
        (None, [], []),
        (Fault.KILL, [("kill", "processing/local.0")], []),
        (Fault.KILL_CORRECTING, [], [("kill", "processing/local.0")]),
    ],
)
def test_a_fault_strikes_at_its_time(
    fault: Fault | None, in_rush: list[object], in_corrections: list[object]
) -> None:
    deployed = Deployed()
    breaks = Breaking(cast("Any", deployed), fault, lambda _: None)
    breaks.in_rush()
    assert deployed.done == in_rush
    deployed.done.clear()
    breaks.in_corrections()
    assert deployed.done == in_corrections


def test_a_run_whose_corrections_stand_ends_with_the_state_of_all_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter(range(100))
    monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=lambda: 60 * next(seconds)))
    first, second = SimpleNamespace(upto_ms=1_000), SimpleNamespace(upto_ms=2_000)
    run = SimpleNamespace(shown={"a": first, "b": second})
    deployed = SimpleNamespace(status_text=lambda: "ingestion waits for passages[1]")
    wait = _Waiting(cast("Any", run), cast("Any", deployed), lambda *_: None)
    for _ in range(10):
        wait._check_progress()
    wait.began_ms = 0
    for _ in range(10):
        first.upto_ms += 1
        wait._check_progress()
    second.upto_ms += 100_000
    for _ in range(6):
        wait._check_progress()
    with pytest.raises(RuntimeError, match=r"for 300 s:\ningestion waits for passages\[1\]"):
        wait._check_progress()


def test_beside_a_fault_the_delay_is_not_judged_and_all_else_is() -> None:
    late = replace(rush(), rush_ms=99_000)
    assert not report(late, "rows")[1]
    assert report(late, "rows", Fault.KILL)[1]
    assert not report(replace(late, wrong=1), "rows", Fault.KILL)[1]


def test_what_names_a_missing_input_is_not_judged_by_the_rows_that_were_kept() -> None:
    shown = Shown(lambda: 0)
    named = {"kind": "tentative", "shed": "500"}
    shown.live(Message(1_000, 0, (1, 0, 2), missing="passages", **named))
    shown.live(Message(1_000, 1, (1, 0, 2), missing="", **named))
    assert [each.lacks_input for each in shown.first.values()] == [True, False]
