"""Two stages that share a core and get more rows than it can process: the one whose rows are worth
less leaves out rows, and both correct everything in the end (OV6, NL1-NL4).
"""

from __future__ import annotations

from functools import cache

import pytest

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.utility import Curve
from harness.load_bench import Cost, Load, LoadBench, NodeBench

DEAR = Curve(((0, 1_000), (1_000, 0)), is_concave=True)
CHEAP = Curve(((0, 1_000), (1_000, 800)), is_concave=True)
FROM_S, UNTIL_S = 15, 45


def rush(rows_per_s: int, before: int = 100) -> Load:
    """Return a load of ``rows_per_s`` for a while. A core processes a thousand rows a second."""
    return lambda now_ms: rows_per_s if FROM_S * 1_000 <= now_ms < UNTIL_S * 1_000 else before


@cache
def node(dear: int, cheap: int, *, chooses: bool = True, until_s: int = UNTIL_S) -> NodeBench:
    """Run two stages with rushes of so many rows a second."""
    made = NodeBench(
        {
            "cheap": (LoadBench(rush(cheap), Cost(fixed_ms=50)), CHEAP),
            "dear": (LoadBench(rush(dear), Cost(fixed_ms=50)), DEAR),
        },
        chooses=chooses,
    )
    made.run(until_s * 1_000)
    return made


def kept(bench: LoadBench) -> float:
    """Return the share of the rows of the rush's second half that was shown first."""
    middle_ms = (FROM_S + UNTIL_S) * 500
    shares = [share for at_ms, share in bench.kept if middle_ms <= at_ms < UNTIL_S * 1_000]
    return sum(shares) / len(shares) if shares else KEPT_ALL


def test_without_a_choice_both_leave_out_rows() -> None:
    made = node(800, 800, chooses=False)
    assert kept(made.stages["dear"]) < 800
    assert kept(made.stages["cheap"]) < 800


@pytest.mark.parametrize(("dear", "cheap"), [(800, 800), (500, 900)])
def test_ov6_the_stage_whose_rows_are_worth_less_leaves_out_rows(dear: int, cheap: int) -> None:
    made = node(dear, cheap)
    assert kept(made.stages["cheap"]) < 600
    assert kept(made.stages["dear"]) > 750
    for name, bench in made.stages.items():
        assert bench.late() == {}, name


def test_nl3_everything_is_corrected_and_the_limits_end() -> None:
    made = node(600, 800, until_s=150)
    assert dict(made.limits[-1][1].kept) == {"cheap": KEPT_ALL, "dear": KEPT_ALL}
    for name, bench in made.stages.items():
        assert len(bench.forks) == len(bench.ends) > 0, name
        assert bench.position_at(bench.now_ms) >= bench.now_ms // 500 - 3, name


def test_nl5_they_correct_one_after_the_other_and_meanwhile_show_all() -> None:
    made = node(600, 800, until_s=150)
    first, second = sorted(made.stages.values(), key=lambda each: each.ends[0])
    assert second.position_at(first.ends[0]) < (UNTIL_S + 5) * 2
    shares = [
        share for at_ms, share in second.kept if (UNTIL_S + 15) * 1_000 < at_ms < first.ends[0]
    ]
    assert min(shares) > 900


def test_nl1_a_full_node_that_is_in_time_is_left_alone() -> None:
    made = node(430, 430)
    assert all(bench.forks == [] for bench in made.stages.values())
