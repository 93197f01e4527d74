"""The rules of Linear Road as a state machine that takes one event at a time. Slow and plain.

Theory of operation. The world of the rules is one expressway and direction, a *road*: a trip, a
stop and an accident never leave it. The balance of a car spans all roads. Within a second all
position reports come before all queries. The average speed is kept as a fraction, so that no
rounding decides about a toll. A road forgets speeds that no average asks for any more, and answers
are kept as integers of a machine: a stream of tens of millions of lines must fit into memory.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.linear_road.stream import (
    BALANCE,
    EXPENDITURE,
    POSITION,
    SCHEMAS,
    Expected,
    expected,
)


class Report(NamedTuple):
    """Position report: the fields of a line that a type 0 uses."""

    time: int
    vid: int
    spd: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int

    @property
    def minute(self) -> int:
        """Number of the minute, from 1."""
        return self.time // 60 + 1


@dataclass(slots=True)
class Car:
    """State of one car on one road."""

    last: Report
    same_reports: int = 1
    """Number of consecutive reports from the last lane and position."""
    quoted: int | None = None
    """Toll that was quoted for the segment of the last report and is not charged yet."""

    @property
    def is_stopped(self) -> bool:
        """Whether the car counts as stopped: four equal reports, in a travel lane."""
        return self.same_reports >= 4 and self.last.lane in {1, 2, 3}


@dataclass(slots=True)
class Crash:
    """Accident at one lane and position. ``cleared`` is None while it lasts."""

    lane: int
    pos: int
    seg: int
    detected: int
    cleared: int | None = None

    def counts_in(self, minute: int) -> bool:
        """Return whether cars are told of it in this minute: from the minute after the detection
        to that of the clearing.
        """
        begins = self.detected // 60 + 2
        return begins <= minute and (self.cleared is None or minute <= self.cleared // 60 + 1)


@dataclass(slots=True)
class Road:
    """State of one expressway and direction."""

    direction: int
    cars: dict[int, Car] = field(default_factory=dict)
    stopped: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    """Cars that are stopped, by lane and position."""
    open_crashes: dict[tuple[int, int], Crash] = field(default_factory=dict)
    crashes: list[Crash] = field(default_factory=list)
    speeds: dict[tuple[int, int], dict[int, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Speeds by (segment, minute), then by car: of the latest minute and the five before."""
    minute: int = 0
    """Latest minute of which there was a report."""
    averages: dict[tuple[int, int], int] = field(default_factory=dict)
    """``latest_average`` of (segment, minute): it does not change within the minute."""

    def add_speed(self, report: Report) -> None:
        """Add the speed of a report, which is of no minute before the latest one."""
        if report.minute > self.minute:
            self.minute = report.minute
            for key in [key for key in self.speeds if key[1] < self.minute - 5]:
                del self.speeds[key]
        self.speeds[report.seg, report.minute][report.vid].append(report.spd)

    def volume(self, seg: int, minute: int) -> int:
        """Return the number of cars that reported from the segment in the minute."""
        cars = self.speeds.get((seg, minute))
        return 0 if cars is None else len(cars)

    def latest_average(self, seg: int, minute: int) -> int:
        """Return the mean of the average speeds of the five minutes before, in whole mph, rounded
        down; -1 if there was no car.
        """
        if (seg, minute) not in self.averages:
            means = []
            for each in range(minute - 5, minute):
                cars = self.speeds.get((seg, each))
                if cars:
                    by_car = [Fraction(sum(spd), len(spd)) for spd in cars.values()]
                    means.append(sum(by_car, Fraction(0)) / len(by_car))
            self.averages[seg, minute] = int(sum(means, Fraction(0)) / len(means)) if means else -1
        return self.averages[seg, minute]

    def nearest_crash(self, seg: int, minute: int) -> int | None:
        """Return the segment of the nearest accident, in the segment or up to four further on."""
        step = 1 if self.direction == 0 else -1
        ahead = [seg + step * distance for distance in range(5)]
        found = [crash.seg for crash in self.crashes if crash.counts_in(minute)]
        return next((each for each in ahead if each in found), None)


class Table:
    """Table of ``Expected`` that grows by rows, with eight bytes for each value."""

    def __init__(self, name: str) -> None:
        self._columns = SCHEMAS[name]
        self._values = array("q")

    def append(self, *row: int) -> None:
        """Add a row."""
        self._values.extend(row)

    def frame(self) -> pl.DataFrame:
        """Return all rows so far."""
        rows = np.frombuffer(self._values, np.int64).reshape(-1, len(self._columns))
        return pl.DataFrame({name: rows[:, at] for at, name in enumerate(self._columns)})


class EventOracle:
    """Linear Road, one event at a time."""

    def __init__(self, history: pl.DataFrame) -> None:
        self._roads: dict[tuple[int, int], Road] = {}
        self._paid: dict[tuple[int, int, int], int] = {
            (vid, day, xway): toll
            for vid, day, xway, toll in history.select("vid", "day", "xway", "toll").iter_rows()
        }
        self._balance: dict[int, int] = defaultdict(int)
        self._previous: Report | None = None
        self._tolls = Table("tolls")
        self._accidents = Table("accidents")
        self._charges = Table("charges")
        self._balances = Table("balances")
        self._expenditures = Table("expenditures")

    def report(self, report: Report) -> None:
        """Take a position report. One that equals the report before was delivered twice."""
        if report == self._previous:
            return
        self._previous = report
        road = self._roads.setdefault((report.xway, report.dir), Road(report.dir))
        road.add_speed(report)
        car = road.cars.get(report.vid)
        is_new_trip = car is None or (report.lane == 0 and report.time - car.last.time > 60)
        was = None if car is None else (car.last.lane, car.last.pos, car.is_stopped)
        if car is None or is_new_trip:
            enters = True
            car = road.cars[report.vid] = Car(report)
        else:
            enters = report.seg != car.last.seg
            here = (report.lane, report.seg, report.pos)
            is_same = here == (car.last.lane, car.last.seg, car.last.pos)
            car.same_reports = car.same_reports + 1 if is_same else 1
            car.last = report
        if enters and car.quoted is not None:
            self._charge(report, car.quoted)
            car.quoted = None
        self._note_stop(road, report, car, was)
        if report.lane == 4:
            car.quoted = None
        elif enters:
            car.quoted = self._notify(road, report)

    def balance(self, time: int, vid: int, qid: int) -> None:
        """Answer a query of type 2."""
        self._balances.append(qid, vid, time, self._balance[vid])

    def expenditure(self, time: int, vid: int, xway: int, qid: int, day: int) -> None:
        """Answer a query of type 3, if the history has the day."""
        toll = self._paid.get((vid, day, xway))
        if toll is not None:
            self._expenditures.append(qid, vid, time, toll)

    def answers(self) -> Expected:
        """Return all answers so far."""
        crashes = Table("crashes")
        for (xway, direction), road in self._roads.items():
            for each in road.crashes:
                cleared = -1 if each.cleared is None else each.cleared
                where = (xway, direction, each.lane, each.pos, each.seg)
                crashes.append(*where, each.detected, cleared)
        return expected(
            tolls=self._tolls.frame(),
            accidents=self._accidents.frame(),
            charges=self._charges.frame(),
            balances=self._balances.frame(),
            expenditures=self._expenditures.frame(),
            crashes=crashes.frame(),
        )

    def _charge(self, report: Report, toll: int) -> None:
        self._balance[report.vid] += toll
        if toll:
            self._charges.append(report.vid, report.time, toll)

    def _notify(self, road: Road, report: Report) -> int:
        """Send the notifications of a car that enters a segment. Return the toll."""
        crash = road.nearest_crash(report.seg, report.minute)
        if crash is not None:
            self._accidents.append(report.vid, report.time, crash)
        average = road.latest_average(report.seg, report.minute)
        volume = road.volume(report.seg, report.minute - 1)
        is_free = average >= 40 or volume <= 50 or crash is not None
        toll = 0 if is_free else 2 * (volume - 50) ** 2
        place = (report.xway, report.dir, report.seg)
        self._tolls.append(report.vid, report.time, average, toll, *place)
        return toll

    def _note_stop(
        self, road: Road, report: Report, car: Car, was: tuple[int, int, bool] | None
    ) -> None:
        """Record that the car has stopped or moved, and the accidents that begin or end by it."""
        if was is not None and was[2] and not car.is_stopped:
            place = was[:2]
            road.stopped[place].discard(report.vid)
            if len(road.stopped[place]) < 2 and place in road.open_crashes:
                road.open_crashes.pop(place).cleared = report.time
        if car.is_stopped:
            place = (report.lane, report.pos)
            road.stopped[place].add(report.vid)
            if len(road.stopped[place]) >= 2 and place not in road.open_crashes:
                crash = Crash(report.lane, report.pos, report.seg, report.time)
                road.open_crashes[place] = crash
                road.crashes.append(crash)


def answers(stream: pl.DataFrame, history: pl.DataFrame) -> Expected:
    """Return the right answers for an input stream in its order."""
    oracle = EventOracle(history)
    columns = ("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos", "qid", "day")
    for kind, time, vid, spd, xway, lane, direction, seg, pos, qid, day in stream.select(
        columns
    ).iter_rows():
        if kind == POSITION:
            oracle.report(Report(time, vid, spd, xway, lane, direction, seg, pos))
        elif kind == BALANCE:
            oracle.balance(time, vid, qid)
        elif kind == EXPENDITURE:
            oracle.expenditure(time, vid, xway, qid, day)
    return oracle.answers()
