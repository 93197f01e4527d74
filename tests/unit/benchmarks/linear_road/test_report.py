"""The report of a run, and that the published ones say what their verdicts say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.linear_road.__main__ import Outcome, write_verdict
from benchmarks.linear_road.feeder import Fed
from benchmarks.linear_road.recovery import Recovered, Recovery, Window
from benchmarks.linear_road.report import report
from benchmarks.linear_road.validator import LIMIT_MS, RULES, Counts, Verdict

PAGE = Path(__file__).parents[4] / "docs/experiments/linear_road.md"
PUBLISHED = sorted(PAGE.with_suffix("").glob("*.json"))
FAULTS = ("missing", "extra", "duplicate", "wrong", "out_of_order")


def verdict_of(found: dict[str, Any], *, judges_lateness: bool) -> Verdict:
    """Make a verdict of its form in a JSON file."""
    counts = {kind: Counts(**each) for kind, each in found["kinds"].items()}
    return Verdict(counts, tuple(found["unreadable"]), judges_lateness)


def recovered_of(found: dict[str, Any]) -> Recovered:
    """Make the figures of a fault of their form in a JSON file."""
    kinds = {kind: Recovery(**each) for kind, each in found["kinds"].items()}
    return Recovered(found["fault"], tuple(found["processes"]), Window(**found["window"]), kinds)


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


@pytest.mark.parametrize(
    "borders", [Verdict({}, ()), Verdict({"tolls": Counts(missing=1)}, ("x",))]
)
def test_a_run_keeps_the_verdict_on_the_border_cases(tmp_path: Path, borders: Verdict) -> None:
    outcome = Outcome(Verdict({"tolls": Counts()}, ()), Fed(1, 0, 0), None, None, 1.0, 1.0, 1.0)
    write_verdict(tmp_path, {"claim": "valid"}, outcome, borders)
    found = json.loads((tmp_path / "verdict.json").read_text())
    assert found["borders"] == borders.as_dict()
    assert found["verdict"] == outcome.verdict.as_dict()
    text = (tmp_path / "report.md").read_text()
    assert text == report({"claim": "valid"}, outcome.verdict, None, borders)
    section = text[text.index("## Border cases") :]
    assert borders.in_words in section
    assert ("1 unreadable lines." in section) is bool(borders.unreadable)
    write_verdict(tmp_path, {"claim": "valid"}, outcome, None)
    assert "borders" not in json.loads((tmp_path / "verdict.json").read_text())
    assert "Border cases" not in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("path", PUBLISHED, ids=[each.stem for each in PUBLISHED])
def test_a_published_report_is_that_of_its_verdict(path: Path) -> None:
    found = json.loads(path.read_text())
    facts = {name: found[name] for name in found if name not in ("verdict", "fault", "borders")}
    recovered = recovered_of(found["fault"]) if "fault" in found else None
    verdict = verdict_of(found["verdict"], judges_lateness=recovered is None)
    borders = verdict_of(found["borders"], judges_lateness=True) if "borders" in found else None
    assert found["verdict"]["rules"] == RULES
    assert verdict.is_right
    assert borders is None or borders.is_valid
    assert path.with_suffix(".md").read_text() == report(facts, verdict, recovered, borders)


def test_each_figure_of_the_page_has_a_published_verdict() -> None:
    page = PAGE.read_text()
    assert PUBLISHED
    digests = set()
    for path in PUBLISHED:
        found = json.loads(path.read_text())
        digests.add(found["generator"]["sha256"])
        assert f"(linear_road/{path.stem}.md)" in page
        for kind, each in found["verdict"]["kinds"].items():
            if "fault" in found:
                name = path.stem.removeprefix("fault-").replace("-standby", " --standby")
                of_kind = found["fault"]["kinds"][kind]
                row = f"| `{name}`: {kind} | {of_kind['received']} | {of_kind['late']} |"
            else:
                times = ", ".join(
                    f"{each[name] / 1_000:.2f} s"
                    for name in ("emit_median_ms", "emit_p999_ms", "emit_max_ms")
                )
                row = (
                    f"{kind} | {spaced(each['expected'])} | {sum(each[name] for name in FAULTS)} |"
                    f" {spaced(each['judged_on_time'])} | {spaced(each['late'])} | {times} |"
                    f" {LIMIT_MS[kind] // 1_000} s |"
                )
            assert row in page, path.stem
    assert set(re.findall(r"\b[0-9a-f]{64}\b", page)) <= digests
