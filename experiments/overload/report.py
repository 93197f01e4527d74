"""Page docs/experiments/overload.md: tables and plots of the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from experiments.dpc.plots import Line, plot
from experiments.overload.deployments import SHED
from experiments.overload.rush import MAX_DELAY_MS
from experiments.overload.virtual import CAPACITY
from experiments.pages import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.overload.rush import Course, Outcome
    from experiments.overload.virtual import Virtual

_AXIS: Final = "seconds since the begin of the rush"
_MARKS: Final = ((0.0, "rush"), (60.0, "half"))
_SHOWN_S: Final = 240
"""Time after the begin of the rush that plots of virtual time show, in seconds."""

_HEAD: Final = (
    "`shed`",
    "usual delay",
    "longest delay",
    "bound",
    "left out",
    "utility",
    "right at once",
    "trucks right at once",
    "backlog",
    "backlog / spare",
    "caught up after",
    "wrong",
)

_HEAD_TWO: Final = (
    "stage",
    "usual delay",
    "19 of 20 in the rush within",
    "longest in the rush",
    "bound",
    "left out",
    "utility in the rush",
    "backlog",
    "caught up after",
    "wrong",
)


def tables(found: Mapping[str, Sequence[Outcome]], course: Course, measured: str) -> dict[str, str]:
    """Return the blocks of the page about real runs, by name; none without a run. ``measured``:
    date, commit and machine.
    """
    one = [
        [run, *_cells(outcomes[0], course.calm)]
        for run, outcomes in found.items()
        if len(outcomes) == 1 and run != "scaled"
    ]
    two = [_cells_of_two(each, course) for each in found.get("two", ())]
    blocks = {}
    if one:
        plotted = "![delay of new results, measured](overload-measured.svg)"
        blocks["one"] = f"{measured}\n\n{table(_HEAD, one)}\n\n{plotted}"
    if two:
        blocks["two"] = f"{measured}\n\n{table(_HEAD_TWO, two)}"
    for outcome in found.get("scaled", ()):
        cells = _cells(outcome, course.calm)
        times = (outcome.shed_from_s, outcome.decided_s, outcome.split_s, outcome.shed_until_s)
        passed = ["never" if at_s is None else f"{at_s:.0f} s" for at_s in times]
        head = (
            *_HEAD[1:6],
            "rows left out from",
            "split wanted after",
            "split after",
            "rows left out until",
            "wrong",
        )
        row = [*cells[:5], *passed, cells[-1]]
        blocks["scaled"] = f"{measured}\n\n{table(head, [row])}"
    return blocks


def virtual_tables(one: Sequence[Virtual], two: Mapping[str, Sequence[Virtual]]) -> dict[str, str]:
    """Return the blocks of the page about virtual time. ``two``: the outcomes of two stages, by how
    the node chooses.
    """
    spare = CAPACITY - CAPACITY // 2
    delays = (*_HEAD[1:3], *_HEAD[4:6])
    head = ("`shed`", *delays, *_HEAD[8:-1], "branches")
    return {
        "virtual-one": table(
            head,
            [
                [
                    *_virtual_cells(each),
                    f"{each.backlog} rows",
                    f"{each.backlog / spare:.0f} s",
                    f"{each.caught_up_s:.0f} s",
                    str(each.forks),
                ]
                for each in one
            ],
        ),
        "virtual-two": table(
            ("who leaves out rows", "stage", *delays),
            [[how, *_virtual_cells(each)] for how, outcomes in two.items() for each in outcomes],
        ),
    }


def plots(found: Mapping[str, Sequence[Outcome]]) -> dict[str, str]:
    """Return the plots of real runs, by name; none without a run."""
    one = {run: found[run][0] for run in SHED if run in found}
    if not one:
        return {}
    lines = [Line(f"shed: {run}", each.delays) for run, each in one.items()]
    return {"overload-measured": _delays("Delay of new results", lines)}


def virtual_plots(one: Sequence[Virtual], two: Mapping[str, Sequence[Virtual]]) -> dict[str, str]:
    """Return the plots of virtual time, by name."""
    shares = [
        Line(
            f"{each.name}, {how}",
            [(at_s, shed / 10) for at_s, shed in each.shares if -10 <= at_s <= _SHOWN_S],
            is_dashed=number == 0,
        )
        for number, (how, outcomes) in enumerate(two.items())
        for each in outcomes
    ]
    lines = [
        Line(each.name, [point for point in each.delays if -10 <= point[0] <= _SHOWN_S])
        for each in one
    ]
    return {
        "overload-delay": _delays("Delay of new results, virtual time", lines),
        "overload-two": plot(
            "Rows left out by two stages of one core", _AXIS, "per cent", shares, _MARKS
        ),
    }


def _delays(title: str, lines: Sequence[Line]) -> str:
    return plot(title, _AXIS, "seconds", lines, _MARKS)


def _virtual_cells(outcome: Virtual) -> list[str]:
    return [
        outcome.name,
        f"{outcome.usual_ms / 1_000:.1f} s",
        f"{outcome.rush_ms / 1_000:.1f} s",
        f"{outcome.shed / 10:.0f} %",
        f"{outcome.utility / 1_000:.2f}",
    ]


def _cells_of_two(outcome: Outcome, course: Course) -> list[str]:
    usual, _, bound, left_out, *_, backlog, _, caught_up, wrong = _cells(outcome, course.calm)
    delays_s = outcome.delays_in(course.rush_s)
    return [
        outcome.output,
        usual,
        f"{delays_s[len(delays_s) * 19 // 20]:.1f} s",
        f"{delays_s[-1]:.1f} s",
        bound,
        left_out,
        f"{(outcome.rush_utility or 0) / 1_000:.2f}",
        backlog,
        caught_up,
        wrong,
    ]


def _cells(outcome: Outcome, calm: int) -> list[str]:
    spare = outcome.kept_per_s - calm
    return [
        f"{outcome.usual_ms / 1_000:.1f} s",
        f"{outcome.rush_ms / 1_000:.1f} s",
        f"{(outcome.usual_ms + MAX_DELAY_MS) / 1_000:.1f} s",
        f"{outcome.shed / 10:.0f} %",
        f"{outcome.utility / 1_000:.2f}",
        f"{outcome.right:.0%}",
        f"{outcome.trucks_right:.0%}",
        f"{outcome.backlog} rows",
        f"{outcome.backlog / spare:.0f} s" if outcome.shed and spare > 0 else "-",
        f"{outcome.caught_up_s:.0f} s",
        f"{outcome.wrong} of {outcome.judged}"
        + (f", {outcome.unsound} first results" if outcome.unsound else ""),
    ]
