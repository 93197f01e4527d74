"""One hop under each way of acknowledging, in virtual time: what recovery costs in messages and
bytes while nothing fails, and how long it takes.

A source sends tuples to a task, which is killed and started again. Only what is done for recovery
differs. Sizes of messages are those of the project's own records, or of the published identifiers
where the project has no such message. Times are those of ``Costs``, so the figures are the same on
every machine; ``experiments.backtracking`` measures three of the disciplines on a real broker.
"""

from __future__ import annotations

import argparse
import heapq
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.codec import boundary_records
from anabranch.codec.blocks import EVENT_TIME, BlockHeaders, encode_block
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, Part
from experiments.backtracking.disciplines import RESEND_MS
from experiments.dpc.plots import Line, plot
from experiments.pages import table, write_page

PAGE: Final = Path(__file__).parents[2] / "docs/experiments/acknowledgements.md"
RATES: Final = (100, 2_000)
"""Tuples/s. At the first every way keeps up."""
FAR_MS: Final = 20.0
"""``Costs.hop_ms`` between two places that are far apart."""
PACE_MS: Final = 20.0
"""Least time between two blocks."""
_TUPLE: Final = struct.Struct("<qqq")
_ATTEMPT: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Costs:
    """Times that a hop takes, in ms."""

    hop_ms: float = 2.0
    """From sending a message until the other side has it."""
    message_ms: float = 0.02
    """Work of the task for each message."""
    tuple_ms: float = 0.002
    """Work of the task for each tuple."""
    checkpoint_ms: float = 2.0
    """Writing a checkpoint durably. The task does nothing else meanwhile."""
    restart_ms: float = 500.0
    """From the kill until the task's next process has its checkpoint."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of acknowledging."""

    name: str
    in_blocks: bool = False
    """Whether the tuples of PACE_MS go as one block, with a boundary record. Else each tuple is a
    message.
    """
    window_ms: float = 0.0
    """Time, by the tuples' own times, between two checkpoints, each with one acknowledgement. 0:
    after every message, before its result leaves.
    """
    waits: bool = False
    """Whether the source sends the next message only when the last one is acknowledged."""
    acknowledges: bool = True
    """Whether there are acknowledgements. Without them the log keeps what the source has sent."""


_WINDOWS_MS: Final = (100.0, 1_000.0, 5_000.0, 20_000.0)
WAYS: Final = (
    Way("ACK, tuple", waits=True),
    Way("ACK, block", in_blocks=True, waits=True),
    Way("ASK, tuple"),
    *(Way(f"ASK, window {ms / 1000:g} s", window_ms=ms) for ms in _WINDOWS_MS),
    Way("ASK, block (anabranch)", in_blocks=True, acknowledges=False),
    *(
        Way(f"ASK, blocks, window {ms / 1000:g} s", True, ms, acknowledges=False)
        for ms in _WINDOWS_MS[1:]
    ),
)


@dataclass(slots=True)
class Traffic:
    """Messages and their bytes, without the broker's framing."""

    messages: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count one message."""
        self.messages += 1
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """A message with the tuples ``first`` to ``next`` - 1."""

    first: int
    next: int


@dataclass(slots=True)
class Outcome:
    """Messages, results and counts of one run."""

    data: Traffic = field(default_factory=Traffic)
    control: Traffic = field(default_factory=Traffic)
    """Identifiers of tuples, boundary records, acknowledgements, requests."""
    checkpoints: int = 0
    sent: int = 0
    taken: list[tuple[float, Sent]] = field(default_factory=list)
    """New results: when they left, and of which tuples."""
    again: int = 0
    """Tuples that were processed a second time, whose results are dropped."""
    kept: int = 0
    """Most tuples that the source had to keep, since they were not acknowledged."""


class Hop:
    """One source and one task. ``run`` once. Times are in ms from the begin."""

    def __init__(self, way: Way, rate: float, costs: Costs) -> None:
        """Prepare the hop; tuple number n is due at n / ``rate`` seconds."""
        self._way, self._rate, self._costs = way, rate, costs
        self.outcome = Outcome()
        self._now = 0.0
        self._end = 0.0
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sent: list[Sent] = []
        self._paced_ms = 0.0
        self._acked = 0
        """Tuples that were acknowledged; what the source keeps begins there."""
        self._life = 0
        """Number of kills: what belongs to an earlier process of the task is void."""
        self._is_up = True
        self._queue: deque[Sent] = deque()
        self._is_busy = False
        self._position = 0
        """Tuples whose effect is in the task's state."""
        self._saved = 0
        """The same in its last checkpoint."""
        self._shown = 0
        """Tuples whose results have left."""

    def run(self, seconds: float, kill_s: float | None = None) -> Outcome:
        """Let the source send for ``seconds``, and the hop end what is under way. The task is
        killed at ``kill_s``.
        """
        self._end = 1_000 * seconds
        self._at(self._due_ms(0), self._pump)
        if kill_s is not None:
            self._at(1_000 * kill_s, self._kill)
        while self._events:
            self._now, _, act = heapq.heappop(self._events)
            if self._now > ENDS_TIMES * self._end:
                break  # it does not keep up
            act()
        return self.outcome

    def _at(self, at_ms: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, act))

    def _in(self, ms: float, act: Callable[[], None]) -> None:
        life = self._life
        self._at(self._now + ms, lambda: act() if life == self._life else None)

    def _due_ms(self, number: int) -> float:
        return 1_000 * number / self._rate

    # ------------------------------------------------------------ the source

    def _pump(self) -> None:
        """Send the next message, and come back for the one after it."""
        number = self.outcome.sent
        if self._due_ms(number) > self._end:
            return
        may_ms = max(self._due_ms(number), self._paced_ms)
        if may_ms > self._now:
            self._at(may_ms, self._pump)
            return
        due = number + 1
        if self._way.in_blocks:
            due = max(due, int(self._now * self._rate / 1_000) + 1)
        sent = Sent(number, due)
        self._sent.append(sent)
        self._paced_ms = self._now + (PACE_MS if self._way.in_blocks else 0)
        self.outcome.sent = due
        self.outcome.kept = max(self.outcome.kept, due - self._acked)
        self._send(sent)
        if self._way.waits:
            self._resend_later(sent)
        else:
            self._at(self._paced_ms, self._pump)

    def _send(self, sent: Sent) -> None:
        data, control = message_bytes(self._way, sent)
        self.outcome.data.add(data)
        if self._way.in_blocks:
            self.outcome.control.add(control)
        else:
            self.outcome.control.size_bytes += control  # within the same message
        self._at(self._now + self._costs.hop_ms, partial(self._arrive, sent))

    def _resend_later(self, sent: Sent) -> None:
        def resend() -> None:
            if self._acked < sent.next:
                self._send(sent)
                self._resend_later(sent)

        self._at(self._now + RESEND_MS, resend)

    def _acknowledged(self, position: int) -> None:
        if position <= self._acked:
            return
        self._acked = position
        if self._way.waits:
            self._pump()

    def _asked(self, position: int) -> None:
        """Send again everything from ``position`` on."""
        for sent in self._sent:
            if sent.next > position:
                self._send(sent)

    # ------------------------------------------------------------ the task

    def _arrive(self, sent: Sent) -> None:
        if self._is_up:
            self._queue.append(sent)
            self._work()

    def _work(self) -> None:
        while self._queue and not self._is_busy:
            sent = self._queue.popleft()
            if sent.next <= self._position:
                if self._way.waits:
                    self._acknowledge()
            elif sent.first > self._position:
                continue  # what is before it was asked for, and comes with it once more
            else:
                self._is_busy = True
                work = self._costs.message_ms + self._costs.tuple_ms * (sent.next - sent.first)
                self._in(work, partial(self._processed, sent))

    def _processed(self, sent: Sent) -> None:
        self._position = sent.next
        if self._way.window_ms:
            self._show(sent)
            window = self._way.window_ms
            if self._due_ms(sent.next) // window == self._due_ms(sent.first) // window:
                self._is_busy = False
                self._work()
                return
        self._in(self._costs.checkpoint_ms, partial(self._checkpointed, sent))

    def _checkpointed(self, sent: Sent) -> None:
        self._saved = self._position
        self.outcome.checkpoints += 1
        if not self._way.window_ms:
            self._show(sent)
        self._acknowledge()
        self._is_busy = False
        self._work()

    def _show(self, sent: Sent) -> None:
        self.outcome.again += max(0, min(self._shown, sent.next) - sent.first)
        if sent.next > self._shown:
            self.outcome.taken.append((self._now, Sent(max(self._shown, sent.first), sent.next)))
            self._shown = sent.next

    def _acknowledge(self) -> None:
        if not self._way.acknowledges:
            return
        position = self._saved
        self.outcome.control.add(len(_identifier(position)))
        self._at(self._now + self._costs.hop_ms, partial(self._acknowledged, position))

    def _kill(self) -> None:
        self._life += 1
        self._is_up = self._is_busy = False
        self._queue.clear()
        self._in(self._costs.restart_ms, self._restarted)

    def _restarted(self) -> None:
        self._is_up, self._position = True, self._saved
        position = self._saved
        if self._way.waits:
            return
        if self._way.acknowledges:
            self.outcome.control.add(len(_identifier(position)))
            self._at(self._now + self._costs.hop_ms, partial(self._asked, position))
            return
        # The log has it: the reader fetches from its position, and nobody sends anything again.
        for sent in self._sent:
            if sent.next > position:
                self._in(self._costs.hop_ms, partial(self._arrive, sent))


def _identifier(number: int) -> str:
    """Return a published message id: source's alias, target's alias, sequence number."""
    return f"a.0^t.0-{number}"


def message_bytes(way: Way, sent: Sent) -> tuple[int, int]:
    """Return the sizes of a message: of the tuples, and of what is there for recovery."""
    if not way.in_blocks:
        return _TUPLE.size, len(_identifier(sent.next))
    numbers = pa.array(range(sent.first, sent.next), pa.int64())
    times = pa.repeat(pa.scalar(sent.first), len(numbers))
    value = encode_block(pa.table({"number": numbers, "value": numbers, EVENT_TIME: times}))
    headers = BlockHeaders(
        bucket=sent.first, epoch=1, number=0, replica="0", attempt=_ATTEMPT
    ).encode()
    part = Part(sent.first, 0, _ATTEMPT, 1, sent.first, sent.first + 1, len(numbers), 2**63)
    record = BoundaryRecord(
        "0", 1, BatchId("000000000001-000000", sent.first + 1), None, sent.first, (part,)
    )
    boundary, names = boundary_records.encode(record)
    return (
        len(value) + _size(headers),
        len(boundary) + _size(names),
    )


def _size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(len(key) + len(value or b"") for key, value in headers)


@dataclass(frozen=True, slots=True)
class HopFigures:
    """Figures of one way of acknowledging."""

    way: str
    data_messages: float
    """Messages with tuples for each 1 000 tuples. This and the next four: without a failure."""
    control_messages: float
    data_bytes: float
    control_bytes: float
    checkpoints: float
    keeps_up: bool
    p50_ms: float
    p99_ms: float
    kept: int
    """Most tuples that the source keeps without a failure; 0: the log keeps them."""
    first_s: tuple[float, float]
    """From the kill to the first new result, mean and longest."""
    caught_up_s: tuple[float, float]
    """From the kill to the first new result that is at most PACE_MS later than before the kill."""
    again: float
    """Tuples that were processed again, mean."""
    lost: int


ENDS_TIMES: Final = 20
"""Times that a run may take of what the source takes, until the task has processed everything."""
CALM_S: Final = 30.0
KILLS: Final = 5
"""Kills for each way, each in a run of its own, evenly spread over a window."""
AFTER_S: Final = 10.0


def measure(way: Way, rate: float, costs: Costs) -> HopFigures:
    """Run ``way`` once without a failure, and once for each kill."""
    calm = Hop(way, rate, costs).run(CALM_S)
    found = latencies_ms(calm, rate)
    p50, p99 = np.percentile(found, (50, 99))
    keeps_up = calm.taken[-1][0] <= 1_000 * CALM_S + 1_000
    first, caught_up, again, lost = list[float](), list[float](), list[int](), 0
    span_s = max(way.window_ms, 1_000) / 1_000
    in_time_ms = float(p99) + PACE_MS  # blocks may be cut at other moments than before
    for number in range(KILLS if keeps_up else 0):
        kill_s = CALM_S - span_s + span_s * (number + 0.47) / KILLS
        outcome = Hop(way, rate, costs).run(CALM_S + AFTER_S, kill_s)
        after = [(at, sent) for at, sent in outcome.taken if at >= 1_000 * kill_s]
        caught = [at for at, sent in after if at - 1_000 * sent.first / rate <= in_time_ms]
        first.append(after[0][0] / 1_000 - kill_s)
        caught_up.append(caught[0] / 1_000 - kill_s)
        again.append(outcome.again)
        lost += outcome.sent - sum(sent.next - sent.first for _, sent in outcome.taken)
    per = 1_000 / calm.sent
    return HopFigures(
        way.name,
        calm.data.messages * per,
        calm.control.messages * per,
        calm.data.size_bytes * per,
        calm.control.size_bytes * per,
        calm.checkpoints * per,
        keeps_up,
        float(p50),
        float(p99),
        calm.kept if way.acknowledges else 0,
        _mean_and_longest(first),
        _mean_and_longest(caught_up),
        float(np.mean(again)) if again else 0.0,
        lost,
    )


def latencies_ms(outcome: Outcome, rate: float) -> np.ndarray:
    """Return the latency of every tuple: from when it was due until its result left."""
    return np.concatenate(
        [at - 1_000 * np.arange(sent.first, sent.next) / rate for at, sent in outcome.taken]
    )


def _mean_and_longest(values: list[float]) -> tuple[float, float]:
    return (float(np.mean(values)), max(values)) if values else (float("nan"), float("nan"))


def _cells(figures: HopFigures) -> list[str]:
    def seconds(values: tuple[float, float]) -> str:
        mean, longest = (f"{value:.2f}" for value in values)
        return mean if mean == longest else f"{mean} ({longest})"

    cells = [
        figures.way,
        *(
            f"{value:,.{0 if value >= 10 or not value else 1 if value >= 1 else 2}f}"
            for value in (
                figures.data_messages,
                figures.control_messages,
                figures.data_bytes,
                figures.control_bytes,
                figures.checkpoints,
            )
        ),
    ]
    if not figures.keeps_up:
        return [*cells, "does not keep up", *(["-"] * 5)]
    return [
        *cells,
        f"{figures.p50_ms:.0f}",
        f"{figures.p99_ms:.0f}",
        f"{figures.kept:,}" if figures.kept else "-",
        seconds(figures.first_s),
        seconds(figures.caught_up_s),
        f"{figures.again:,.0f}",
    ]


def page_table(measured: Sequence[HopFigures]) -> str:
    """Return the figures as a Markdown table."""
    head = [
        "way",
        "data messages",
        "control messages",
        "data bytes",
        "control bytes",
        "checkpoints",
        "p50 ms",
        "p99 ms",
        "kept",
        "first new result s",
        "caught up s",
        "processed again",
    ]
    return table(head, [_cells(each) for each in measured])


def recovery_plot(measured: Sequence[HopFigures]) -> str:
    """Return the plot of recovery by the size of windows."""
    by_name = {each.way: each.first_s[1] for each in measured}
    lines = [
        Line(
            "blocks" if in_blocks else "tuples",
            [
                (way.window_ms / 1_000, by_name[way.name])
                for way in WAYS
                if way.in_blocks is in_blocks and way.window_ms
            ],
        )
        for in_blocks in (False, True)
    ]
    return plot(
        f"ASK in windows, {RATES[-1]:,} tuples/s: longest time to the first new result",
        "window s",
        "s from the kill",
        lines,
    )


def main() -> int:
    """Measure, and write the page. 0: nothing was lost."""
    parser = argparse.ArgumentParser(prog="python -m experiments.backtracking.virtual")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the figures to")
    arguments = parser.parse_args()
    near = [[measure(way, rate, Costs()) for way in WAYS] for rate in RATES]
    far = [measure(way, RATES[0], Costs(hop_ms=FAR_MS)) for way in WAYS]
    blocks = {
        "slow": page_table(near[0]),
        "fast": page_table(near[1]),
        "far": page_table(far),
    }
    write_page(arguments.page, blocks, {"acknowledgements-windows": recovery_plot(near[1])})
    for block in blocks.values():
        print(f"{block}\n")
    return 1 if any(each.lost for each in (*near[0], *near[1], *far)) else 0


if __name__ == "__main__":
    sys.exit(main())
