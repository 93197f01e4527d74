"""One run: two owners under load, a kill in each movement, then judgement."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Message

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.federation.tables import ledgers_of, movements_of, read_book
from anabranch.pipeline.file import load
from anabranch.protocol.federation.movements import Movement, MovementState
from chaos import judgement as chaos_judgement
from chaos.judgement import Seen
from demo.comparing import Comparison, Delivered, compare, followed
from demo.consuming import TopicReader, delivered, read_whole
from demo.machine_watch import MachineWatch
from demo.process_tree import TreeMeter
from demo.stalls import Apart, judged
from moves import judgement
from moves.deployment import FILES, Owners
from moves.judgement import NODES, Bounds, Struck, bound_of
from moves.schedule import Kill
from moves.traffic import WINDOW_MS, Sighting, Traffic, answer
from moves.watch import AWAY, HOME, Watch

OUTPUT: Final = "speeds"
CALM, RUSH = 1, 8
"""Sightings every 20 ms: 50 and 400 per second. North keeps its stage at the one and sells it at
the other.
"""
PRICES: Final = (6, 20)
"""Bounds of the price in terms.yaml."""
WARM_S: Final = 20.0
USUAL_S: Final = 20.0
"""Traffic without movements, which says what is usual, after that in which all gets warm."""
MOVE_S: Final = 240.0
"""A movement ends within this."""
STILL_S: Final = 1.5
"""The stage stays where it is for so long, or the movement has not ended."""
_STUCK_S: Final = 20.0
"""Time after which a movement that does not begin is looked at, in seconds: its contract may be
suspended, which an operator must see.
"""
_LOOK_S: Final = 0.02
_AFTER_KILL_S: Final = 0.5
"""Time after which everything written until the kill has been read, in seconds."""
_SEEN_S: Final = 5.0
"""The results of the time that says what is usual have come by then; those that have not are slower
than what counts.
"""
_END_S: Final = 180.0


_PAUSE: Final = threading.Event()
"""Never set."""


class Moved(NamedTuple):
    """A movement, as it went."""

    kill: Kill
    target: str
    ended: str
    """How."""
    began_ms: int
    ended_ms: int
    bound: judgement.Bound
    latest_ms: int
    """The longest delay of the results that came meanwhile."""


@dataclass(slots=True)
class Verdict:
    """Findings of a run. ``wrong``: what was lost, duplicated, wrong or did not end; ``late``: what
    was later than its bound; both in words.
    """

    moved: list[Moved]
    bounds: Bounds
    compared: Comparison
    sightings: int
    late_total: int
    too_slow: str
    """Why no delays could be judged; empty: they were."""
    stalled: Apart
    """Counts of late results: the number that stalls of the machine leave unjudged."""
    restarts: dict[str, int] = field(default_factory=dict)
    book: str = ""
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    late_moves: int = 0
    """Movements in which something was late."""

    @property
    def clean_moves(self) -> int:
        """Movements in which nothing was late; what is wrong is no single one's."""
        return 0 if self.wrong else max(0, len(self.moved) - self.late_moves)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was wrong, and nothing late, judged or not."""
        return not self.wrong and not self.late and not self.stalled.stalled


class Stuck(Exception):
    """A movement did not end."""


def _span_ms(seen: Seen) -> tuple[int, int]:
    return seen.event_time_ms, seen.received_ms


def now_ms() -> int:
    """Since 1970."""
    return time.time_ns() // 1_000_000


class Run:
    """One run in ``folder``. ``say`` gets a line for each event, ``show`` each movement."""

    def __init__(
        self,
        folder: Path,
        kills: Sequence[Kill],
        seed: int,
        say: Callable[[str], None],
        show: Callable[[Moved], None],
    ) -> None:
        self._kills, self._seed = kills, seed
        self._say, self._show = say, show
        self._owners = Owners(folder)
        self._pipeline = load(FILES / "north.yaml")
        self._results: list[Delivered] = []
        self._struck: list[Struck] = []
        self._moved: list[Moved] = []
        self._bounds = Bounds(0, self._pipeline.max_delay_ms)
        self._usual: list[int] = []
        self._newest_ms = 0
        """The latest window of which a result has come."""

    def run(self) -> Verdict:
        """Start, move, stop, judge.

        Raises:
            DeploymentError: something does not start, or a supervisor has ended.
        """
        try:
            self._owners.start()
            return self._under_load()
        finally:
            self._owners.stop()

    def _under_load(self) -> Verdict:
        owners, kafka = self._owners, self._owners.kafka
        meter = TreeMeter(*owners.supervisors(), sees_memory=False)
        watch = MachineWatch(meter)
        reader = TopicReader(kafka, OUTPUT, self._take)
        traffic = Traffic(kafka, self._seed, self._pipeline.partitions)
        traffic.at_once = RUSH
        for thread in (meter, watch, reader, traffic):
            thread.start()
        try:
            self._say("all are up; traffic begins")
            self._get_warm(reader)
            from_ms = self._see_what_is_usual(watch)
            wrong = self._move_all(traffic, reader)
            last_ms = self._last_windows(reader)
            sent = traffic.stop()
            restarts = owners.restarts()
        finally:
            reader.stop()
            meter.stop()
            watch.stop()
            if traffic.is_alive():
                traffic.stop()
        owners.stop_all_but_kafka()
        compared, differs = self._compare(sent, last_ms)
        seen = [each for each in self._seen() if each.event_time_ms <= last_ms]
        late, _, stalled = judged(
            judgement.late(seen, self._bounds, self._struck, from_ms), watch.stalls(), _span_ms
        )
        words = judgement.late_in_words(late, self._bounds, self._struck)
        verdict = Verdict(
            self._moved,
            self._bounds,
            compared,
            len(sent),
            len(late),
            chaos_judgement.too_slow(self._usual),
            stalled,
            restarts,
            wrong=[*wrong, *differs],
            late=words,
            late_moves=len(judgement.moves_of(late, [each.began_ms for each in self._moved])),
        )
        self._judge_book(verdict)
        return verdict

    def _compare(self, sent: Sequence[Sighting], last_ms: int) -> tuple[Comparison, list[str]]:
        """Compare the topic as it is now with the answer, and with what was seen of it. Return the
        comparison and the differences, in words.
        """
        again: list[Delivered] = []
        read_whole(self._owners.kafka, OUTPUT, lambda message: again.append(delivered(message)))
        pipeline = self._pipeline
        wanted = answer(sent, last_ms, pipeline.bucket_ms, pipeline.partitions)
        compared = compare(wanted, (each for each in again if each.result.event_time_ms <= last_ms))
        return compared, [
            *judgement.wrong_results(compared),
            *followed(OUTPUT, self._results, again),
        ]

    def _take(self, message: Message) -> None:
        each = delivered(message)
        self._results.append(each)
        self._newest_ms = max(self._newest_ms, each.result.event_time_ms)

    def _seen(self) -> list[Seen]:
        return [Seen(each.result.event_time_ms, each.received_ms) for each in [*self._results]]

    def _get_warm(self, reader: TopicReader) -> None:
        end_s = time.monotonic() + _END_S
        while not self._newest_ms:
            self._check(reader)
            if time.monotonic() > end_s:
                raise Stuck("no result came before the first movement")
            _PAUSE.wait(_LOOK_S)
        _PAUSE.wait(WARM_S)

    def _see_what_is_usual(self, watch: MachineWatch) -> int:
        """Measure the delays without movements. Return when that time began."""
        from_ms = now_ms()
        _PAUSE.wait(USUAL_S)
        to_ms = now_ms()
        _PAUSE.wait(_SEEN_S)
        clear, _, _ = judged(self._seen(), watch.stalls(), _span_ms)
        self._usual = judgement.usual_ms(clear, from_ms, to_ms)
        self._bounds = self._bounds._replace(usual_ms=max(self._usual, default=0))
        self._say(f"without movements a result takes up to {self._bounds.usual_ms / 1_000:.1f} s")
        return from_ms

    def _check(self, reader: TopicReader) -> None:
        if reader.error is not None:
            raise reader.error

    # ---------------------------------------------------------------- movements

    def _move_all(self, traffic: Traffic, reader: TopicReader) -> list[str]:
        """Run all movements. Return those that did not end, in words."""
        self._owners.sign()
        self._say("north and south have signed a contract")
        watch = Watch(self._owners.kafka, self._pipeline)
        try:
            for kill in self._kills:
                self._check(reader)
                moved = _Movement(self._owners, watch, traffic, kill, self._is_back)
                self._moved.append(moved.do(self._struck, self._seen))
                self._show(self._moved[-1])
        except Stuck as error:
            return [str(error)]
        finally:
            watch.close()
        return []

    def _is_back(self, killed_ms: int) -> bool:
        """Whether results of windows after a kill come, and no later than usual and max_delay."""
        may_ms = WINDOW_MS + self._bounds.usual_ms + self._bounds.max_delay_ms
        return self._newest_ms > max(killed_ms, now_ms() - may_ms)

    def _last_windows(self, reader: TopicReader) -> int:
        """Return the end of the last judged window, once results of later ones have come."""
        last_ms = now_ms() // WINDOW_MS * WINDOW_MS
        end_s = time.monotonic() + _END_S
        while self._newest_ms <= last_ms and time.monotonic() < end_s:
            self._check(reader)
            _PAUSE.wait(_LOOK_S)
        return last_ms

    def _judge_book(self, verdict: Verdict) -> None:
        federation = self._pipeline.federation
        assert federation is not None, "it is in one"
        book = read_book(KafkaEventLog(self._owners.kafka), federation)
        try:
            movements, ledger = movements_of(book), ledgers_of(book)
        finally:
            book.close()
        verdict.wrong += judgement.wrong_book(movements, ledger, PRICES)
        (contract,) = ledger["contracts"]
        reasons = [row["why"] or "runs" for row in movements]
        counted = ", ".join(f"{why} {reasons.count(why)}" for why in sorted(set(reasons)))
        verdict.book = (
            f"movements that were paid: {len(movements)} ({counted}); balances"
            f" {json.dumps(ledger['balances_nano'])}, sum {ledger['sum_nano']}; disputes"
            f" {contract['disputes']}"
        )


class _Movement:
    """One of them, with its kill."""

    def __init__(
        self,
        owners: Owners,
        watch: Watch,
        traffic: Traffic,
        kill: Kill,
        is_back: Callable[[int], bool],
    ) -> None:
        """``is_back``: whether results come again after a kill at a time."""
        self._owners, self._watch = owners, watch
        self._traffic, self._kill = traffic, kill
        self._is_back = is_back
        self._known: set[str] = set()
        """Movements that were over before."""

    def do(self, struck: list[Struck], seen: Callable[[], list[Seen]]) -> Moved:
        """Move, kill, wait for the end.

        Raises:
            Stuck: it does not end.
        """
        watch, kill = self._watch, self._kill
        watch.poll()
        self._known = {each.movement_id for each in self._over()}
        target = HOME if watch.is_sold() else AWAY
        self._resume()
        began_ms = now_ms()
        self._traffic.at_once = RUSH if target == AWAY else CALM
        self._until(lambda: watch.has_come(kill.moment, target), f"{kill.moment} to {target}")
        self._until_ms(now_ms() + kill.delay_ms)
        before = watch.runs_on
        at_ms = self._owners.kill(kill.party)
        self._until_ms(now_ms() + int(_AFTER_KILL_S * 1_000))
        struck.append(Struck(at_ms, bound_of(kill.party, {before, watch.runs_on})))
        ended = self._await_end(target, at_ms)
        ended_ms = now_ms()
        latest_ms = judgement.latest_ms(seen(), began_ms, ended_ms)
        return Moved(kill, target, ended, began_ms, ended_ms, struck[-1].bound, latest_ms)

    def _over(self) -> list[Movement]:
        return [each for each in self._watch.movements if each.state is MovementState.OVER]

    def _await_end(self, target: str, killed_ms: int) -> str:
        """Until the stage has been where it stays for a while, all processes run, and results of
        windows after the kill have come. How it ended.
        """
        watch = self._watch
        still_s, ended = time.monotonic(), ""
        end_s = time.monotonic() + MOVE_S
        while True:
            watch.poll()
            now = self._ended(target)
            if now != ended or not now:
                still_s, ended = time.monotonic(), now
            down = self._owners.down()
            is_back = not down and self._is_back(killed_ms)
            if is_back and time.monotonic() - still_s > STILL_S:
                return ended
            if time.monotonic() > end_s:
                results = "come" if self._is_back(killed_ms) else "do not come"
                state = self._state([*down, f"results {results}"])
                raise Stuck(f"{self._words(target)} did not end: {state}")
            _PAUSE.wait(_LOOK_S)

    def _ended(self, target: str) -> str:
        """How, as it looks now; empty: it has not."""
        over = [each for each in self._over() if each.movement_id not in self._known]
        why = over[-1].why if over else None
        if self._watch.is_at(target):
            return "moved" if why is None or target == HOME else f"moved again after {why.value}"
        if why is not None and self._watch.is_at(HOME):
            return f"came home: {why.value}"
        return ""

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        begun_s = time.monotonic()
        while not holds():
            if time.monotonic() > begun_s + MOVE_S:
                raise Stuck(f"{self._words('')} not seen: {what}: {self._state([])}")
            if time.monotonic() > begun_s + _STUCK_S:
                self._resume()
            self._watch.poll()
            _PAUSE.wait(_LOOK_S)

    def _until_ms(self, end_ms: int) -> None:
        while now_ms() < end_ms:
            self._watch.poll()
            _PAUSE.wait(_LOOK_S)

    def _resume(self) -> None:
        """Resume a contract that a party suspended after its partner failed, as its operator."""
        for party in self._watch.suspended_by:
            self._owners.resume(party)
            self._until_ms(now_ms() + 200)

    def _words(self, target: str) -> str:
        kill = self._kill
        return f"movement {kill.number} {target} ({kill.party} killed, {kill.moment})"

    def _state(self, down: Sequence[str]) -> str:
        watch = self._watch
        return (
            f"it is to run on {watch.ordered}, runs on {watch.runs_on}, movements"
            f" {watch.movements[-2:]}, suspended by {watch.suspended_by}, {down}"
        )


def title(moved: Moved) -> str:
    """Return the owner of the node that the stage was to move to."""
    return {node: party for party, node in NODES.items()}[moved.target].removesuffix("'s node")
