"""Sweep of ``experiments.ha.virtual``: cost and recovery in each mode, against the interval between
checkpoints, the window and the rate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.protocol.errors import AnabranchError
from experiments.dpc.plots import Line, plot
from experiments.ha.virtual import (
    AMNESIA,
    KEYS,
    MODES,
    PASSIVE,
    STORED,
    Measured,
    Mode,
    Setting,
    VirtualStage,
    block_bytes,
)
from experiments.pages import table

WINDOWS_S: Final = (2, 10, 30, 120)
RATES: Final = (1_000, 4_000, 16_000, 64_000)
INTERVALS_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
PHASES: Final = (1 / 4, 3 / 4)
"""Shares of the interval between checkpoints at which a node is lost: on average half of it."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameter that is varied, and the modes in which it is."""

    name: str
    unit: str
    values: Sequence[float]
    setting: Callable[[Mode, float], Setting]
    modes: Sequence[Mode] = MODES


WINDOW: Final = Axis(
    "window", "s", WINDOWS_S, lambda mode, window: Setting(mode, window_s=int(window))
)
RATE: Final = Axis("rows", "rows/s", RATES, lambda mode, rate: Setting(mode, rate=int(rate)))
INTERVAL: Final = Axis(
    "interval",
    "s",
    INTERVALS_S,
    lambda mode, interval_s: Setting(mode, interval_s=interval_s),
    (STORED, PASSIVE),
)
LOSING: Final = Axis("window", "s", WINDOWS_S, WINDOW.setting, (AMNESIA,))


class Sweep:
    """Settings that were measured, each once."""

    def __init__(self, phases: Sequence[float] = PHASES) -> None:
        """Begin without any."""
        self._phases = phases
        self._found: dict[Setting, Measured] = {}

    def of(self, setting: Setting) -> Measured:
        """Return the figures of ``setting``.

        Raises:
            AnabranchError: a result is wrong, or lost though the mode loses none.
        """
        if setting not in self._found:
            with tempfile.TemporaryDirectory(prefix="anabranch-ha-") as folder:
                found = VirtualStage(setting, Path(folder)).run(self._phases)
            if found.wrong or (found.lost and setting.mode.name != "amnesia"):
                message = f"{setting}: {found.wrong} windows are wrong, {found.lost} missing"
                raise AnabranchError(message)
            self._found[setting] = found
            print(f"{setting.mode.name}, {setting.window_s} s, {setting.rate}/s: done", flush=True)
        return self._found[setting]


def group_bytes() -> float:
    """Return the computed size of a group of the state: that of a row of results."""
    return block_bytes(KEYS) / KEYS


def extra_bytes(found: Measured) -> float:
    """Return the bytes that a mode moves in a second beyond the input and its results."""
    calm = found.calm
    copies = calm.copies.size_bytes + calm.read_again
    return copies + calm.beats.size_bytes + calm.groups_copied * group_bytes()


def overhead(found: Measured) -> str:
    """Return ``extra_bytes`` in per cent of the bytes of the input and the results."""
    needed = found.calm.input.size_bytes + found.calm.results.size_bytes
    return f"{100 * extra_bytes(found) / needed:.1f}"


def number(value: float) -> str:
    """Return a whole number, its thousands apart."""
    return f"{value:,.0f}".replace(",", " ")


def first_s(found: Measured) -> str:
    """Return the mean time until results come again, and until they are as early as before."""
    return f"{found.first_s:.1f} / {found.caught_up_s:.1f}"


def costs(sweep: Sweep) -> str:
    """Return the table of what each mode does in a second without a failure."""
    rows = []
    for mode in MODES:
        calm = sweep.of(Setting(mode)).calm
        rows.append(
            [
                mode.name,
                number(calm.results.records + calm.copies.records),
                number(calm.results.size_bytes + calm.copies.size_bytes),
                f"{number(calm.beats.records)} / {number(calm.beats.size_bytes)}",
                number(calm.read_again),
                number(calm.groups_copied),
                overhead(sweep.of(Setting(mode))),
                number(calm.busy_ms),
                number(calm.kept_rows),
            ]
        )
    head = [
        "`ha`",
        "records written",
        "bytes written",
        "heartbeats, their bytes",
        "bytes read again",
    ]
    return table([*head, "groups copied", "overhead %", "work, ms", "rows kept"], rows)


def by_value(
    sweep: Sweep,
    across: Axis,
    figure: Callable[[Measured], str],
) -> str:
    """Return a table of one figure: modes down, values across."""
    rows = [
        [mode.name, *(figure(sweep.of(across.setting(mode, each))) for each in across.values)]
        for mode in across.modes
    ]
    head = [f"{number(each)} {across.unit}" for each in across.values]
    return table(["`ha`", *head], rows)


def plot_of(sweep: Sweep, across: Axis, title: str) -> str:
    """Return the plot of the time until results come again."""
    lines = [
        Line(mode.name, [(v, sweep.of(across.setting(mode, v)).first_s) for v in across.values])
        for mode in across.modes
    ]
    return plot(title, f"{across.name} {across.unit}", "results after s", lines)


def blocks_and_plots(sweep: Sweep) -> tuple[dict[str, str], dict[str, str]]:
    """Run the sweep; return the tables of the page, and its plots."""
    blocks = {
        "costs": costs(sweep),
        "overhead-rate": by_value(sweep, RATE, overhead),
        "overhead-interval": by_value(sweep, INTERVAL, overhead),
        "window": by_value(sweep, WINDOW, first_s),
        "window-again": by_value(sweep, WINDOW, lambda found: number(found.rows_again)),
        "window-kept": by_value(sweep, WINDOW, lambda found: number(found.calm.kept_rows)),
        "interval": by_value(sweep, INTERVAL, first_s),
        "interval-again": by_value(sweep, INTERVAL, lambda found: number(found.rows_again)),
        "rate": by_value(sweep, RATE, first_s),
        "rate-again": by_value(sweep, RATE, lambda found: number(found.rows_again)),
        "lost": by_value(sweep, LOSING, lambda found: f"{found.lost / len(found.losses):.1f}"),
    }
    plots = {
        "high-availability-window": plot_of(sweep, WINDOW, "Recovery by window, 4 000 rows/s"),
        "high-availability-interval": plot_of(sweep, INTERVAL, "Recovery by checkpoint interval"),
        "high-availability-rate": plot_of(sweep, RATE, "Recovery by rate, windows of 10 s"),
    }
    return blocks, plots
