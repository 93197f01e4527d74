"""Makes the tables and plots of docs/experiments/market.md."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final

from experiments.dpc.plots import Line, plot
from experiments.market.changing import Changing, hour
from experiments.market.figures import (
    CONTRACTS,
    DELTAS,
    OVER,
    UNDER,
    Outcome,
    Setting,
    averaged,
    percent,
    run,
)
from experiments.market.owners import OWNERS, story
from experiments.pages import replaced, table

PAGE: Final = Path("docs/experiments/market.md")
SMALL: Final = 300
"""Participants where the published note has so many."""

Found = Mapping[Setting, Sequence[Outcome]]


class Figures:
    """All settings that any figure needs, each run once."""

    def __init__(self, participants: int, seeds: int) -> None:
        self.participants, self.seeds = participants, seeds
        self.settings: list[Setting] = []
        self.found: dict[Setting, list[Outcome]] = {}

    def need(self, **values: float | bool) -> Setting:
        """Note a setting to measure."""
        setting = Setting(**{"participants": self.participants, **values})  # type: ignore[arg-type]
        if setting not in self.settings:
            self.settings.append(setting)
        return setting

    def measure(self, jobs: int) -> None:
        """Measure the noted settings, the long ones first."""
        work = [
            (setting, seed)
            for setting in sorted(self.settings, key=lambda s: -s.delta)
            for seed in range(1, self.seeds + 1)
        ]
        with multiprocessing.Pool(jobs) as pool:
            for (setting, _), outcome in zip(
                work, pool.starmap(run, work, chunksize=1), strict=True
            ):
                self.found.setdefault(setting, []).append(outcome)

    def residue(self, setting: Setting) -> float:
        """In per cent."""
        return averaged(self.found[setting], lambda outcome: outcome.residue)


def main() -> None:
    """Run all experiments and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, default=995)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="blocks by name, with commas; the others stay")
    arguments = parser.parse_args()
    figures = Figures(arguments.participants, arguments.seeds)
    made_by: dict[str, Callable[[], Callable[[], str]]] = {
        "residues": lambda: residues(figures),
        "convergence": lambda: convergence(figures),
        "uneven": lambda: uneven(figures),
        "prices": lambda: prices(figures),
        "costs": lambda: costs(figures),
        "changing": lambda: changing(arguments.seeds, arguments.jobs),
        "owners": lambda: owners,
    }
    wanted = arguments.only.split(",") if arguments.only else list(made_by)
    # A block notes its settings when it is made: what is not wanted is not measured.
    blocks = {name: made_by[name]() for name in wanted}
    begun_s = time.monotonic()
    figures.measure(arguments.jobs)
    text = PAGE.read_text()
    for name, body in blocks.items():
        made = body()
        text = replaced(text, name, made)
        print(f"\n{name}\n\n{made}")
    PAGE.write_text(text)
    print(f"\n{PAGE} after {time.monotonic() - begun_s:.0f} s")


def residues(figures: Figures) -> Callable[[], str]:
    """Overload that is left, by number of contracts and range of prices."""
    settings = {
        (share, contracts, delta): figures.need(contracts=contracts, delta=delta, share=share)
        for share in (UNDER, OVER)
        for contracts in CONTRACTS
        for delta in DELTAS
    }

    def body() -> str:
        rows = []
        for contracts in CONTRACTS:
            wide = averaged(
                figures.found[settings[UNDER, contracts, 0]], lambda outcome: outcome.diameter
            )
            cells = [
                percent(figures.residue(settings[share, contracts, delta]))
                for share in (UNDER, OVER)
                for delta in DELTAS
            ]
            rows.append([f"{contracts} ({wide:.0f})", *cells])
        for share, name, what in ((UNDER, "under", "overload"), (OVER, "over", "unused room")):
            lines = [
                Line(
                    f"range {d} %", [(c, figures.residue(settings[share, c, d])) for c in CONTRACTS]
                )
                for d in DELTAS
            ]
            title = f"{what} left, {'underloaded' if share < 1 else 'overloaded'} system"
            PAGE.with_name(f"market-{name}.svg").write_text(
                plot(title, "contracts per participant, at least", "% of the initial", lines)
            )
        head = [
            "contracts (diameter)",
            *(f"{word}: {d} %" for word in ("under", "over") for d in DELTAS),
        ]
        return table(head, rows)

    return body


def convergence(figures: Figures) -> Callable[[], str]:
    """How fast it goes, and in how many movements."""
    settings = {
        (c, d): figures.need(contracts=c, delta=d, share=UNDER)
        for c in (1, 3, 5, 10)
        for d in DELTAS
    }

    def body() -> str:
        def of_each(contracts: int, measure: Callable[[Outcome], float]) -> list[float]:
            return [averaged(figures.found[settings[contracts, d]], measure) for d in DELTAS]

        rows = [
            [
                str(contracts),
                *(f"{rounds:.0f}" for rounds in of_each(contracts, lambda o: o.rounds)),
                *(
                    f"{movements / figures.participants:.1f}"
                    for movements in of_each(contracts, lambda o: o.run.movements)
                ),
                *(
                    f"{moves / figures.participants:.1f}"
                    for moves in of_each(contracts, lambda o: o.run.moves)
                ),
            ]
            for contracts in (1, 3, 5, 10)
        ]
        lines = []
        for contracts in (3, 10):
            for delta in DELTAS:
                course = figures.found[settings[contracts, delta]][0].course[:121]
                points = [(number, 100 * value / course[0]) for number, value in enumerate(course)]
                lines.append(
                    Line(f"{contracts} contracts, {delta} %", points, is_dashed=contracts == 3)
                )
        text = plot("overload left, round by round", "rounds", "% of the initial", lines)
        PAGE.with_name("market-convergence.svg").write_text(text)
        head = [
            "contracts",
            *(f"{what}: {d} %" for what in ("rounds", "movements", "tasks moved") for d in DELTAS),
        ]
        return table(head, rows)

    return body


def uneven(figures: Figures) -> Callable[[], str]:
    """Tasks of different sizes, and a margin."""
    deltas = (0, 5, 10, 20)
    kinds = [(c, m) for c in (3, 5, 10) for m in (0, 20, 50)]
    settings = {
        (c, m, d): figures.need(
            participants=SMALL, contracts=c, delta=d, share=UNDER, uneven=True, margin_permille=m
        )
        for c, m in kinds
        for d in deltas
    }

    def body() -> str:
        rows = [
            [
                str(c),
                f"{m / 10:.0f} %",
                *(percent(figures.residue(settings[c, m, d])) for d in deltas),
            ]
            for c, m in kinds
        ]
        return table(["contracts", "margin of gain", *(f"range {d} %" for d in deltas)], rows)

    return body


def prices(figures: Figures) -> Callable[[], str]:
    """Contracts of different prices."""
    spreads, deltas = (0, 10, 20, 40), (0, 6, 17)
    settings = {
        (s, d): figures.need(participants=SMALL, contracts=5, delta=d, share=UNDER, spread=s)
        for s in spreads
        for d in deltas
    }

    def body() -> str:
        lines = [
            Line(f"range {d} %", [(s, figures.residue(settings[s, d])) for s in spreads])
            for d in deltas
        ]
        text = plot(
            "overload left where prices differ",
            "prices differ by up to, %",
            "% of the initial",
            lines,
        )
        PAGE.with_name("market-prices.svg").write_text(text)
        return table(
            ["prices differ by up to", *(f"range {d} %" for d in deltas)],
            [
                [f"{s} %", *(percent(figures.residue(settings[s, d])) for d in deltas)]
                for s in spreads
            ],
        )

    return body


def costs(figures: Figures) -> Callable[[], str]:
    """Against no market and against the central optimum."""
    kinds = [(c, d) for c in (3, 10) for d in DELTAS]
    settings = {
        (c, d, share): figures.need(contracts=c, delta=d, share=share)
        for c, d in kinds
        for share in (UNDER, OVER)
    }

    def body() -> str:
        first = {share: settings[3, 0, share] for share in (UNDER, OVER)}

        def ratio(setting: Setting, place: int) -> str:
            value = averaged(
                figures.found[setting], lambda outcome: outcome.run.cost[place] / outcome.best_cost
            )
            return f"{value:.2f}" if value < 10 else f"{value:.0f}"

        rows = [["no market", *(ratio(first[share], 0) for share in (UNDER, OVER)), "100"]]
        for c, d in kinds:
            name = f"{c} contracts, {'fixed prices' if d == 0 else f'range {d} %'}"
            ratios = [ratio(settings[c, d, share], -1) for share in (UNDER, OVER)]
            rows.append([name, *ratios, percent(figures.residue(settings[c, d, UNDER]))])
        return table(
            ["", "cost, underloaded", "cost, overloaded", "overload left, %"],
            [*rows, ["central optimum", "1", "1", "0"]],
        )

    return body


def changing(seeds: int, jobs: int) -> Callable[[], str]:
    """Load that changes, by range and minimum hold."""

    def body() -> str:
        kinds = [(0, 60), (6, 60), (17, 10), (17, 60), (17, 300)]
        with multiprocessing.Pool(jobs) as pool:
            hours = pool.map(
                hour,
                [
                    Changing(delta, hold_s, seed)
                    for delta, hold_s in kinds
                    for seed in range(1, seeds + 1)
                ],
                chunksize=1,
            )
        rows = []
        for number, (delta, hold_s) in enumerate(kinds):
            found = hours[number * seeds : (number + 1) * seeds]
            moves = [
                f"{mean(each.moves for each in found):.1f}",
                str(max(each.moves_max for each in found)),
                str(3_600 // hold_s),
            ]
            figures = [
                f"{mean(each.cost for each in found):.2f}",
                percent(mean(each.overload for each in found)),
            ]
            rows.append(
                [
                    f"{delta} %",
                    f"{hold_s} s",
                    *figures,
                    *moves,
                    f"{mean(each.messages for each in found):.0f}",
                ]
            )
        head = [
            "range",
            "minimum hold",
            "cost",
            "overload, %",
            "moves of a task, mean",
            "most",
            "bound",
            "messages",
        ]
        return table(head, rows)

    return body


def owners() -> str:
    """Three owners: their loads over time, and what was settled."""
    fixed, ranged = story(0), story(17)
    head = ["s", *(f"{name}: {kind}" for name in OWNERS for kind in ("alone", "0 %", "17 %"))]
    rows = [
        [
            str(at_s),
            *(
                f"{load:.0f}"
                for name in OWNERS
                for load in (*with_fixed[name], with_range[name][1])
            ),
        ]
        for (at_s, with_fixed), (_, with_range) in zip(fixed.loads, ranged.loads, strict=True)
    ]
    sums = [
        [name, f"{fixed.owners[name].waiting_alone:.0f}"]
        + [
            f"{value:.0f}"
            for each in (fixed.owners[name], ranged.owners[name])
            for value in (each.waiting, each.settled, each.gain)
        ]
        for name in OWNERS
    ]
    kinds = [f"{what}: {d} %" for d in (0, 17) for what in ("waiting", "settled", "gain")]
    return f"{table(head, rows)}\n\n{table(['owner', 'waiting: alone', *kinds], sums)}"


if __name__ == "__main__":
    main()
