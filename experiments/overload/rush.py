"""One rush on a running deployment: traffic, what its outputs show, and the answer."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from statistics import mean
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, Producer

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.pipeline.file import load
from anabranch.pipeline.waits import qos_of
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.streams.placement import PlacementReader
from demo.consuming import TopicReaders, header, received_ms
from demo.deployment import Deployment
from experiments.overload.kept import Passage, Result, is_sound, least_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from anabranch.protocol.stage.utility import Qos

WINDOW_MS: Final = 1_000
GATES: Final = 20
TRUCK_SHARE: Final = 0.1
SERVICES: Final = ("ingestion", "processing", "delivery")
SCALER: Final = "consistency_manager"
MAX_DELAY_MS: Final = 4_000
"""Bound that the pipeline files state."""
_NODE: Final = "processing/local.0"
_SOURCE: Final = "ingestion/passages"
_TICK_S: Final = 0.05
_READY_S: Final = 300.0
IN_TIME_MS: Final = 4_000
"""Delay of corrected results, in ms, below which everything is corrected."""
USUAL_MS: Final = 10_000
"""Time before the rush in which the usual delay is measured, in ms."""
_CORRECTED_S: Final = 3_600.0
"""Timeout for the corrections after a rush, in seconds. In virtual time two stages on one core take
half an hour for those of a minute.
"""
STANDS_S: Final = 300.0
"""Time without a corrected result of any output after which a run fails, in seconds. A correction
waits for the end of an overload for less.
"""
_WAITING_S: Final = 30
"""Seconds of traffic that may wait for the broker. Where more wait, it does not take them."""
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Course:
    """Course of one rush."""

    calm: int
    """Rows per second before and after the rush."""
    rush: int
    before_s: float
    """Time for which results come steadily before the rush, without a break."""
    rush_s: float
    calm_s: float = inf
    """Time after the rush, in seconds, from which rows come at ``lull``, if not all is corrected
    by then.
    """
    lull: int = 0
    """Rows per second after ``calm_s``."""


class Fault(StrEnum):
    """Fault beside a rush."""

    KILL = "kill"
    """The node is killed in the middle of the rush."""
    KILL_CORRECTING = "kill-correcting"
    """The node is killed while it corrects, CORRECTING_S after the rush."""
    CUT = "cut"
    """The source is cut off from the middle of the rush until CUT_S later."""


CORRECTING_S: Final = 6.0
"""Time after the rush in which corrections have begun and have not ended, in seconds."""
CUT_S: Final = 10.0
"""Duration of a cut, in seconds: longer than the stage waits."""


@dataclass(frozen=True, slots=True)
class First:
    """First result of a gate in a window on a live topic."""

    at_ms: int
    result: Result
    shed: int
    """Per mille of the rows that it lacks."""
    is_tentative: bool
    lacks_input: bool = False
    """Whether it names an input as missing."""


class Truth:
    """Answer, computed from what was sent."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        self.rows: dict[int, int] = defaultdict(int)
        """Number of rows of each window, by its end in ms."""
        self.passages: list[Passage] = []

    def add(self, gate: int, axles: int, time_ms: int, vehicle: int = 0) -> None:
        """Add a passage."""
        self.passages.append(Passage(gate, vehicle, axles, time_ms))
        end_ms = (time_ms // WINDOW_MS + 1) * WINDOW_MS
        sums = self._results[end_ms, gate]
        sums[0] += 1
        sums[1] += axles > 2
        sums[2] += 2 if axles == 2 else 9
        self.rows[end_ms] += 1

    def upto(self, end_ms: int) -> dict[tuple[int, int], Result]:
        """Return the results of all windows that end by ``end_ms``."""
        return {
            key: (sums[0], sums[1], sums[2])
            for key, sums in list(self._results.items())
            if key[0] <= end_ms
        }


class Traffic(threading.Thread):
    """Thread that sends passages at a rate that may change."""

    def __init__(self, kafka: str, topic: str, rows_per_s: int) -> None:
        super().__init__(name="traffic", daemon=True)
        self.rows_per_s, self.truth = rows_per_s, Truth()
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": kafka, "linger.ms": 5, "enable.idempotence": True}
        )
        self._random = random.Random(7)
        self._stopping = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Send until ``stop``."""
        owed, before_s = 0.0, time.monotonic()
        try:
            while not self._stopping.wait(_TICK_S):
                now_s = time.monotonic()
                owed += (now_s - before_s) * self.rows_per_s
                before_s = now_s
                for _ in range(int(owed)):
                    self._send(received_ms())
                owed %= 1
                self._producer.poll(0)
                if len(self._producer) > _WAITING_S * max(self.rows_per_s, 1):
                    message = f"{len(self._producer)} records wait for the broker"
                    raise RuntimeError(message)  # noqa: TRY301 - as the client's errors
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self.error = error

    def _send(self, time_ms: int) -> None:
        gate = self._random.randrange(GATES)
        axles = 5 if self._random.random() < TRUCK_SHARE else 2
        passage = {"gate": gate, "vehicle": self._random.randrange(10**6), "axles": axles}
        value = json.dumps(passage | {"time": time_ms})
        self._producer.produce(self._topic, value, on_delivery=self._delivered)
        self.truth.add(gate, axles, time_ms, passage["vehicle"])

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Note an error of a record: the answer counts it, and the source never gets it."""
        if error is not None:
            self.error = KafkaException(error)

    def end(self) -> None:
        """Send no more. Idempotent."""
        self._stopping.set()
        self.join()

    def stop(self) -> None:
        """End, and wait until all passages are delivered.

        Raises:
            RuntimeError: the broker did not take all of them.
        """
        self.end()
        if self._producer.flush(30):
            raise RuntimeError(f"the broker did not take all records of {self._topic}")


@dataclass
class Shown:
    """Results of one output, as its topics showed them."""

    now_ms: Callable[[], int] = received_ms
    first: dict[tuple[int, int], First] = field(default_factory=dict)
    """First result of each window's end, in ms, and gate."""
    delays_ms: dict[int, int] = field(default_factory=dict)
    """Time from the end of each window to its first result."""
    shed: dict[int, int] = field(default_factory=dict)
    """Per mille that the first result of each window lacks."""
    corrected: dict[tuple[int, int], list[Result]] = field(default_factory=dict)
    corrected_at: dict[int, int] = field(default_factory=dict)
    """Time at which each window was first in the corrected topic, in ms."""

    def live(self, message: Message) -> None:
        """Take a record of the live topic."""
        kind, now_ms = header(message, "anabranch-kind"), self.now_ms()
        if kind not in ("insertion", "tentative"):
            return
        key, result = _parsed(message)
        shed = int(header(message, "anabranch-shed") or 0)
        lacks_input = bool(header(message, "anabranch-missing"))
        self.first.setdefault(key, First(now_ms, result, shed, kind == "tentative", lacks_input))
        if key[0] not in self.delays_ms:
            self.delays_ms[key[0]] = now_ms - key[0]
            self.shed[key[0]] = shed

    def stable(self, message: Message) -> None:
        """Take a record of the corrected topic."""
        key, result = _parsed(message)
        self.corrected.setdefault(key, []).append(result)
        self.corrected_at.setdefault(key[0], self.now_ms())

    def first_of(self, end_ms: int) -> First | None:
        """Return what was shown first of any gate in the window that ends at ``end_ms``."""
        return next((each for key, each in list(self.first.items()) if key[0] == end_ms), None)

    @property
    def upto_ms(self) -> int:
        """End of the last window in the corrected topic."""
        return max(list(self.corrected_at), default=0)


def _parsed(message: Message) -> tuple[tuple[int, int], Result]:
    value = json.loads(message.value() or b"")
    end_ms = int(header(message, "anabranch-event-time"))
    return (end_ms, value["gate"]), (value["vehicles"], value["trucks"], value["toll"])


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a rush at one output."""

    output: str
    usual_ms: int
    """Longest delay of new results before the rush."""
    rush_ms: int
    """Longest delay of new results from the begin of the rush until all was corrected."""
    shed: float
    """Per mille of the rows that new results in the rush lacked, on average."""
    utility: float
    """Utility of new results from the begin of the rush until all was corrected, per mille."""
    right: float
    """Share of the results of the rush's windows that were right when they were first shown."""
    trucks_right: float
    """The same of the number of trucks alone."""
    backlog: int
    """Number of rows at the end of the rush that the corrected topic lacked."""
    kept_per_s: float
    """Rows per second that tentative results were made from in the rush."""
    caught_up_s: float
    """Time from the end of the rush until corrected results were in time again, in seconds."""
    wrong: int
    """Number of corrected results that differ from the answer, are missing or are there twice."""
    judged: int
    delays: tuple[tuple[float, float], ...]
    """Seconds since the begin of the rush, and delay of new results in seconds."""
    stable_delays: tuple[tuple[float, float], ...]
    """The same of corrected results."""
    shares: tuple[tuple[float, int], ...]
    """Seconds since the begin of the rush, and per mille of the rows that new results lacked."""
    decided_s: float | None = None
    """Time from the begin of the rush until the scaler wanted to split the stage, in seconds."""
    unsound: int | None = None
    """Number of first results that are not made from the rows that were kept; None: which rows
    these are is not known.
    """
    split_s: float | None = None
    """Time from the begin of the rush until the halves of the stage were proven, in seconds; None:
    it was not split.
    """
    rush_utility: float | None = None
    """Utility of new results in the rush, per mille; None: from an earlier version."""

    def delays_in(self, rush_s: float) -> list[float]:
        """Return the delays of new results in a rush of ``rush_s`` seconds, in seconds, sorted."""
        return sorted(delay_s for at_s, delay_s in self.delays if 1 <= at_s <= rush_s)

    @property
    def shed_from_s(self) -> float:
        """Time from the begin of the rush to the first window whose first result lacked rows, in
        seconds; 0 if there is none.
        """
        return min((at_s for at_s, shed in self.shares if shed > 0 and at_s > 0), default=0.0)

    @property
    def shed_until_s(self) -> float:
        """Time from the begin of the rush to the last window whose first result lacked rows, in
        seconds; 0 if there is none.
        """
        return max((at_s for at_s, shed in self.shares if shed > 0 and at_s > 0), default=0.0)


class Rush:
    """Deployment of a pipeline file of this folder, with readers of its outputs and traffic."""

    def __init__(self, pipeline: Path, folder: Path, say: Callable[[str], None]) -> None:
        self._say = say
        self._folder = folder
        self.pipeline = load(pipeline)
        self._path = pipeline
        self.readers: TopicReaders | None = None
        self.traffic: Traffic | None = None
        self.shown: dict[str, Shown] = {name: Shown() for name in self.pipeline.outputs}

    def run(
        self,
        course: Course,
        each_s: Callable[[Rush, float], None],
        fault: Fault | None = None,
    ) -> list[Outcome]:
        """Run the whole course. ``each_s`` is called about once a second, with the seconds since
        the begin of the rush. ``fault``: what else fails; its node is killed, or its source is cut
        off.
        """
        log = self._folder / "up.log"
        services = SERVICES if self.pipeline.scaling is None else (*SERVICES, SCALER)
        deployment = Deployment(
            self._path,
            self._folder / "state",
            log,
            only=services,
            drills=fault is Fault.CUT,
        )
        breaks = Breaking(deployment, fault, self._say)
        try:
            self._say(f"starting a broker, Spark and {', '.join(services)}")
            deployment.wait_ready(_READY_S)
            kafka = deployment.kafka()
            takers = {}
            for name, output in self.pipeline.outputs.items():
                assert output.live is not None, "as the file says"  # noqa: S101
                takers[output.corrected.topic] = self.shown[name].stable
                takers[output.live.topic] = self.shown[name].live
            self.readers = TopicReaders(kafka, takers)
            self.readers.start()
            self.traffic = traffic = Traffic(kafka, "passages", course.calm)
            traffic.start()
            outcomes, began_ms = self._drive(deployment, breaks, course, each_s, kafka)
            at_s = {
                step.step: (step.written_ms - began_ms) / 1_000
                for step in reversed(self._steps(kafka))
            }
            return [
                replace(each, decided_s=at_s.get(Step.WANTED), split_s=at_s.get(Step.CONFIRMED))
                for each in outcomes
            ]
        finally:
            if self.traffic is not None:
                self.traffic.end()
            try:
                if self.readers is not None:
                    self.readers.stop()
            finally:
                deployment.stop(set())

    def _drive(
        self,
        deployment: Deployment,
        breaks: Breaking,
        course: Course,
        each_s: Callable[[Rush, float], None],
        kafka: str,
    ) -> tuple[list[Outcome], int]:
        """Return the outcomes, and the time at which the rush began, in ms.

        Raises:
            RuntimeError: the scaler has split the stage before the rush, so the run would not show
                what the split does about it.
        """
        assert self.traffic is not None, "it runs"  # noqa: S101
        traffic = self.traffic
        wait, steady = _Waiting(self, deployment, each_s), Lasting(course.before_s)
        wait.until(
            lambda: steady.holds(
                time.monotonic(), is_so=all(is_steady(each) for each in self.shown.values())
            ),
            _READY_S + course.before_s,
            f"steady results for {course.before_s:.0f} s",
        )
        if steps := self._steps(kafka):
            raise RuntimeError(f"the stage was split before the rush: {steps[0].reason}")
        began_ms = received_ms()
        wait.began_ms = began_ms
        traffic.rows_per_s = course.rush
        wait.seconds(course.rush_s / 2)
        breaks.in_rush()
        wait.seconds(course.rush_s - (received_ms() - began_ms) / 1_000)
        ended_ms = received_ms()
        traffic.rows_per_s = course.calm
        backlogs = {
            name: sum(
                rows for end_ms, rows in list(traffic.truth.rows.items()) if end_ms > shown.upto_ms
            )
            for name, shown in self.shown.items()
        }
        wait.seconds(CORRECTING_S)
        breaks.in_corrections()
        lull_ms = ended_ms + course.calm_s * 1_000

        def are_corrected() -> bool:
            if received_ms() > lull_ms:
                traffic.rows_per_s = course.lull
            return all(self._has_caught_up(each, ended_ms) for each in self.shown.values())

        wait.until(are_corrected, _CORRECTED_S, "the corrections")
        wait.seconds(5)
        last_ms = min(each.upto_ms for each in self.shown.values()) - WINDOW_MS
        wait.seconds(3)
        traffic.stop()
        return [
            judge(
                name,
                qos_of(self.pipeline, name),
                shown,
                traffic.truth,
                (began_ms, ended_ms),
                last_ms,
                backlog=backlogs[name],
                least=least_of(self.pipeline, name, traffic.truth.passages, WINDOW_MS),
            )
            for name, shown in self.shown.items()
        ], began_ms

    def _steps(self, kafka: str) -> list[SplitStep]:
        """Return the steps of splits so far, the oldest first."""
        steps: list[SplitStep] = []
        if not self.pipeline.may_split:
            return steps
        topic, places = self.pipeline.topic_names.placement(), self.pipeline.places()
        log = KafkaEventLog(kafka)
        with closing(PlacementReader(log, topic, places, on_split=steps.append)) as reader:
            reader.read_to_end()
        return steps

    @staticmethod
    def _has_caught_up(shown: Shown, ended_ms: int) -> bool:
        newest_ms = max(shown.delays_ms, default=0)
        newest = shown.first_of(newest_ms)
        return (
            shown.upto_ms > ended_ms
            and newest is not None
            and not newest.is_tentative
            and received_ms() - shown.upto_ms < IN_TIME_MS
        )


def judge(
    name: str,
    qos: Qos,
    shown: Shown,
    truth: Truth,
    rush_ms: tuple[int, int],
    last_ms: int,
    *,
    backlog: int,
    least: Callable[[tuple[int, int], int], Result] | None = None,
) -> Outcome:
    """Return the outcome of a rush at the output ``name``.

    Args:
        name: Name of the output.
        qos: What its results are worth.
        shown: What it has shown.
        truth: The answer.
        rush_ms: Begin and end of the rush.
        last_ms: End of the last window that is judged.
        backlog: Number of rows that the corrected topic lacked at the end of the rush.
        least: Least result of a window's end and gate that lacks so many per mille of its rows;
            None: not known.
    """
    (began_ms, ended_ms), answer = rush_ms, truth.upto(last_ms)
    found = {key: values for key, values in shown.corrected.items() if key[0] <= last_ms}
    wrong = sum(found.get(key) != [result] for key, result in answer.items())
    wrong += len(found.keys() - answer.keys())
    delays = sorted(shown.delays_ms.items())
    # The first window of the rush has rows from before it.
    in_rush = [end for end, _ in delays if began_ms + WINDOW_MS <= end <= ended_ms]
    whole = [end for end, _ in delays if began_ms < end <= last_ms]
    firsts = [(result, shown.first.get(key)) for key, result in answer.items() if key[0] in in_rush]

    def utility(windows: list[int]) -> float:
        return mean(qos.utility(shown.delays_ms[end], shown.shed[end]) for end in windows)

    caught_up_ms = next(
        (
            at_ms
            for end_ms, at_ms in sorted(shown.corrected_at.items())
            if end_ms > ended_ms and at_ms - end_ms < IN_TIME_MS
        ),
        shown.now_ms(),
    )
    shed = mean(shown.shed[end] for end in in_rush)
    rows_per_s = mean(truth.rows[end] for end in in_rush) * 1_000 / WINDOW_MS
    return Outcome(
        output=name,
        usual_ms=max(ms for end, ms in delays if began_ms - USUAL_MS < end <= began_ms),
        rush_ms=max(shown.delays_ms[end] for end in whole),
        shed=shed,
        utility=utility(whole),
        rush_utility=utility(in_rush),
        right=mean(first is not None and first.result == result for result, first in firsts),
        trucks_right=mean(
            first is not None and first.result[1] == result[1] for result, first in firsts
        ),
        backlog=backlog,
        kept_per_s=rows_per_s * (1_000 - shed) / 1_000,
        caught_up_s=(caught_up_ms - ended_ms) / 1_000,
        wrong=wrong,
        judged=len(answer),
        unsound=None if least is None else _unsound(shown, answer, last_ms, least),
        delays=tuple(((end - began_ms) / 1_000, ms / 1_000) for end, ms in delays),
        stable_delays=tuple(
            ((end - began_ms) / 1_000, (at - end) / 1_000)
            for end, at in sorted(shown.corrected_at.items())
        ),
        shares=tuple(((end - began_ms) / 1_000, shed) for end, shed in sorted(shown.shed.items())),
    )


def _unsound(
    shown: Shown,
    answer: Mapping[tuple[int, int], Result],
    last_ms: int,
    least: Callable[[tuple[int, int], int], Result],
) -> int:
    """Return the number of first results that are not what the rows give that were kept."""
    return sum(
        window not in answer
        or not is_sound(
            first.result,
            least(window, first.shed) if first.is_tentative else answer[window],
            answer[window],
        )
        for window, first in shown.first.items()
        if window[0] <= last_ms and not first.lacks_input
    )


def is_steady(shown: Shown) -> bool:
    """Return whether results come, with delays that differ by less than two seconds."""
    newest = sorted(shown.delays_ms.items())[-8:]
    delays = [delay for _, delay in newest]
    return (
        len(newest) == 8
        and max(delays) < 3_000
        and max(delays) - min(delays) < 2_000
        and shown.now_ms() - newest[-1][0] < IN_TIME_MS
    )


@dataclass
class Lasting:
    """Condition that must hold for some time without a break."""

    for_s: float
    _since_s: float | None = None

    def holds(self, now_s: float, *, is_so: bool) -> bool:
        """Return whether it has held for ``for_s``. ``is_so``: whether it holds now."""
        if not is_so:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        return self._since_s is not None and now_s - self._since_s >= self.for_s


class Breaking:
    """Fault of a run, at its time."""

    def __init__(
        self, deployment: Deployment, fault: Fault | None, say: Callable[[str], None]
    ) -> None:
        self._deployment, self._fault, self._say = deployment, fault, say

    def in_rush(self) -> None:
        """Do what is to be done in the middle of the rush."""
        if self._fault is Fault.KILL:
            self._kill()
        elif self._fault is Fault.CUT:
            self._say(f"{_SOURCE} is cut off for {CUT_S:g} s")
            self._deployment.drill("cut", _SOURCE)
            time.sleep(CUT_S)
            self._deployment.drill("heal", _SOURCE)

    def in_corrections(self) -> None:
        """Do what is to be done while the stage corrects."""
        if self._fault is Fault.KILL_CORRECTING:
            self._kill()

    def _kill(self) -> None:
        self._deployment.kill(_NODE)
        self._say(f"{_NODE} is killed, and started again")


class _Waiting:
    """Waits that end early with an error of the deployment or the traffic, or if no corrected
    result comes.
    """

    def __init__(
        self, rush: Rush, deployment: Deployment, each_s: Callable[[Rush, float], None]
    ) -> None:
        self._rush, self._deployment, self._each_s = rush, deployment, each_s
        self.began_ms: int | None = None
        self._called_ms = self._upto_ms = 0
        self._stands = Lasting(STANDS_S)

    def until(self, condition: Callable[[], bool], deadline_s: float, what: str) -> None:
        """Wait for ``condition``.

        Raises:
            RuntimeError: it does not hold in time.
        """
        end_s = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > end_s:
                raise RuntimeError(
                    f"{what} did not come within {deadline_s:.0f} s: is the machine busy?"
                    f" {self._deployment.log_tail()}"
                )
            self._step()

    def seconds(self, duration_s: float) -> None:
        """Let ``duration_s`` pass."""
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            self._step()

    def _step(self) -> None:
        time.sleep(_POLL_S)
        self._deployment.check_running()
        if self._rush.traffic is not None and self._rush.traffic.error is not None:
            raise self._rush.traffic.error
        if self._rush.readers is not None:
            self._rush.readers.check()
        now_ms = received_ms()
        if now_ms - self._called_ms >= 1_000:
            self._called_ms = now_ms
            since_s = 0.0 if self.began_ms is None else (now_ms - self.began_ms) / 1_000
            self._each_s(self._rush, since_s)
            self._check_progress()

    def _check_progress(self) -> None:
        """Raise RuntimeError with the state of all processes if the rush has begun, and no
        corrected result has come for STANDS_S.
        """
        # Of two stages one waits until the other is corrected.
        upto_ms = sum(shown.upto_ms for shown in self._rush.shown.values())
        is_same = self.began_ms is not None and upto_ms == self._upto_ms
        self._upto_ms = upto_ms
        if self._stands.holds(time.monotonic(), is_so=is_same):
            raise RuntimeError(
                f"no corrected result for {STANDS_S:.0f} s:\n{self._deployment.status_text()}"
            )
