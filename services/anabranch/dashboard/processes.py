"""Follower of the processes' HTTP ports for the page: their states and their metrics.

The supervisor's file names the processes of a deployment of ``anabranch up``; elsewhere the user
names them with ``--process``. A process that does not answer is ``silent``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from anabranch.dashboard.exposition import ProcessMetrics, figures_of
from anabranch.local import probe
from anabranch.local.status import Row, detail_in_words, rows_of, stages_of

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.dashboard.feed import PageFeed

_EVERY_S: Final = 1.0
_FIGURES_EVERY: Final = 3
"""Interval between reads of the metrics, in rounds of _EVERY_S."""
_FIGURES_KEPT: Final = 20
"""Number of metric reads that are kept: those of the last minute, over which times are shown."""
_REQUESTS_AT_ONCE: Final = 8

Address = tuple[str, int]
"""Host and metrics port of a process."""


class ProcessFollower:
    """Follower of the processes' ports. Runs in the thread that calls ``work``."""

    def __init__(
        self, feed: PageFeed, state_dir: Path | None, addresses: Mapping[str, Address]
    ) -> None:
        """Follow the processes at ``addresses``, by SERVICE/NAME; empty: those of ``state_dir``."""
        self._feed = feed
        self._state_dir = state_dir
        self._addresses = dict(addresses)
        self._figures: deque[dict[str, ProcessMetrics]] = deque([{}], maxlen=_FIGURES_KEPT)
        self._round = 0

    def work(self) -> None:
        """Ask all processes once a second, until the page ends."""
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="asks") as threads:
            while not self._feed.stopping.is_set():
                self._ask(threads)
                self._feed.stopping.wait(_EVERY_S)

    def _ask(self, threads: ThreadPoolExecutor) -> None:
        """Ask all processes once, at the same time, and show their answers."""
        if self._addresses:
            found: list[Row] | None = list(threads.map(_row_at, self._addresses.items()))
            places = self._addresses
        else:
            found = None if self._state_dir is None else rows_of(self._state_dir)
            places = {
                f"{row['service']}/{row['name']}": ("127.0.0.1", int(str(row["metrics_port"])))
                for row in found or ()
                # A paused process accepts connections and never answers: do not wait for it.
                if row["metrics_port"] is not None and row["state"] != "paused"
            }
        if self._round % _FIGURES_EVERY == 0:
            answers = threads.map(_figures_at, places.values())
            self._figures.append(dict(zip(places, answers, strict=True)))
        self._round += 1
        shown = None if found is None else [line for row in found for line in page_lines(row)]
        with self._feed.page() as page:
            page.show_processes(
                shown, self._figures[-1], self._figures[0], self._feed.clock.now_ms()
            )


def page_lines(row: Row) -> list[dict[str, Any]]:
    """Return the page's rows of a process and of each replica on it."""
    replicas = [
        {
            **stage,
            "service": "replica",
            "name": f"{stage.get('stage')}.{stage.get('replica')}",
            "state": str(stage.get("state")),
            "reported": detail_in_words({"detail": {}, **stage}),
        }
        for stage in stages_of(row)
    ]
    return [row | {"reported": detail_in_words(row)}, *replicas]


def _row_at(known: tuple[str, Address]) -> Row:
    """Ask a process that no supervisor's file names, and return its row as ``local.status.rows_of``
    does.
    """
    label, (host, port) = known
    service, _, name = label.partition("/")
    row: Row = {
        "service": service,
        "name": name,
        "state": "silent",
        "lag_ms": None,
        "restarts": None,
        "error": None,
        "address": f"{host}:{port}",
        "waiting_for": None,
        "cut": None,
        "detail": {},
    }
    found = probe.get(port, "/statusz", host=host)
    try:
        answer = json.loads(found[1]) if found is not None and found[0] == 200 else None
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        row |= {key: answer.get(key, row[key]) for key in row if key in answer} | {
            "service": service,
            "name": name,
            "state": str(answer.get("state")),
        }
    return row


def _figures_at(place: Address) -> ProcessMetrics:
    """Read the metrics of a process; without an answer: none."""
    host, port = place
    found = probe.get(port, "/metrics", host=host)
    return (
        figures_of(found[1].decode("utf-8", "replace")) if found is not None else ProcessMetrics()
    )
