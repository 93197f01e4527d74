"""Cases at the borders of the rules, written by hand, with answers that were derived by hand.

Each case has an expressway of its own, so that the cases form one input stream. A case gives the
answers of the cars that it probes with; those of its crowds follow from the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from benchmarks.linear_road.stream import (
    BALANCE,
    EXPENDITURE,
    FEET_PER_SEGMENT,
    INPUT,
    POSITION,
    World,
    in_order,
)

END_S: Final = 600
_VIDS: Final = 10_000
"""Cars of a case: their numbers begin with the case's."""
_CROWD: Final = 1_000
"""First number of the cars that make volume, within a case."""


@dataclass(slots=True)
class Case:
    """Case under construction: its input, and the answers that are right."""

    name: str
    number: int
    rows: list[dict[str, int]] = field(default_factory=list)
    history: list[tuple[int, int, int, int]] = field(default_factory=list)
    tolls: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Tolls that the probing cars are told, as (car, time, average, toll)."""
    accidents: list[tuple[int, int, int]] = field(default_factory=list)
    """Accidents that the probing cars are told of, as (car, time, segment of the accident)."""
    balances: list[tuple[int, int]] = field(default_factory=list)
    """Query, balance."""
    expenditures: list[tuple[int, int]] = field(default_factory=list)
    """Query, toll."""

    def car(self, number: int) -> int:
        """Return the number of a car of this case in the stream."""
        return self.number * _VIDS + number

    @property
    def probes(self) -> range:
        """Cars whose answers are given."""
        return range(self.car(0), self.car(_CROWD))

    def report(
        self,
        car: int,
        time: int,
        seg: int,
        *,
        lane: int = 1,
        feet: int = 100,
        spd: int = 30,
        east: bool = True,
        xway: int | None = None,
    ) -> None:
        """Let a car report from ``feet`` behind the west end of a segment."""
        self.rows.append(
            {
                "type": POSITION,
                "time": time,
                "vid": self.car(car),
                "spd": spd,
                "xway": self.number if xway is None else xway,
                "lane": lane,
                "dir": 0 if east else 1,
                "seg": seg,
                "pos": seg * FEET_PER_SEGMENT + feet,
            }
        )

    def enters(
        self,
        car: int,
        time: int,
        seg: int,
        *,
        lav: int = -1,
        toll: int = 0,
        crash: int | None = None,
        east: bool = True,
        lane: int = 1,
    ) -> None:
        """Let a car report from a segment, for which it is notified."""
        self.report(car, time, seg, east=east, lane=lane)
        self.tolls.append((self.car(car), time, lav, toll))
        if crash is not None:
            self.accidents.append((self.car(car), time, crash))

    def crowd(
        self, seg: int, minute: int, spds: list[int], *, lanes: tuple[int, ...] = (2,)
    ) -> None:
        """Let one car for each speed report from the segment in the minute."""
        first = _CROWD + seg * 80 + minute * 8_000 // 10
        for number, spd in enumerate(spds):
            lane = lanes[number % len(lanes)]
            at = (minute - 1) * 60 + number % 60
            self.report(first + number, at, seg, lane=lane, feet=1_000 + number, spd=spd)

    def stand(
        self,
        car: int,
        times: list[int],
        seg: int,
        *,
        lane: int = 2,
        feet: int = 50,
        east: bool = True,
    ) -> None:
        """Let a car report from one place at each of these times. It may be notified, too: it is
        none of the probing cars.
        """
        for time in times:
            self.report(_CROWD + car, time, seg, lane=lane, feet=feet, spd=5, east=east)

    def crash(self, first: int, seg: int, until: int, *, feet: int = 50, east: bool = True) -> None:
        """Let two cars, numbers ``first`` and ``first + 1``, collide: detected at second 95 and
        cleared at ``until``.
        """
        for car, offset in ((first, 0), (first + 1, 5)):
            self.stand(car, list(range(offset, until, 30)), seg, feet=feet, east=east)
            self.stand(car, [until + offset], seg, feet=feet + 900, east=east)

    def asks_balance(self, car: int, time: int, balance: int) -> None:
        """Let a car ask for its balance."""
        qid = self.car(len(self.rows))
        self.rows.append({"type": BALANCE, "time": time, "vid": self.car(car), "qid": qid})
        self.balances.append((qid, balance))

    def asks_day(self, car: int, time: int, day: int, toll: int | None) -> None:
        """Let a car ask for the toll of an earlier day; None: it gets no answer."""
        qid = self.car(len(self.rows))
        self.rows.append(
            {
                "type": EXPENDITURE,
                "time": time,
                "vid": self.car(car),
                "xway": self.number,
                "qid": qid,
                "day": day,
            }
        )
        if toll is not None:
            self.expenditures.append((qid, toll))


def _volume_50_and_51(case: Case) -> None:
    case.crowd(10, 1, [30] * 50)
    case.enters(1, 60, 10, lav=30)
    case.crowd(20, 1, [30] * 51)
    case.enters(2, 60, 20, lav=30, toll=2)


def _volume_counts_ramps(case: Case) -> None:
    case.crowd(10, 1, [30] * 52, lanes=(0, 4))
    case.enters(1, 61, 10, lav=30, toll=8)


def _volume_counts_a_car_once(case: Case) -> None:
    case.crowd(10, 1, [30] * 50)
    case.crowd(10, 1, [30] * 50)  # as cars of the same numbers, it is the same delivered twice
    for time in (0, 30):
        case.report(_CROWD + 900, time, 10, feet=time, spd=30)
    case.enters(1, 65, 10, lav=30, toll=2)


def _average_below_and_at_40(case: Case) -> None:
    case.crowd(10, 1, [40] * 54 + [39] * 6)
    case.enters(1, 70, 10, lav=39, toll=200)
    case.crowd(20, 1, [40] * 60)
    case.enters(2, 70, 20, lav=40)


def _average_of_thirds_is_exact(case: Case) -> None:
    for number, spds in enumerate([(39, 40, 40)] * 20 + [(40, 40, 41)] * 20 + [(40, 40, 40)] * 20):
        for nth, spd in enumerate(spds):
            case.report(_CROWD + number, nth * 20, 10, feet=nth * 600, spd=spd)
    case.enters(1, 60, 10, lav=40)


def _average_of_minutes(case: Case) -> None:
    case.crowd(10, 1, [39] * 30 + [40] * 30)
    case.crowd(10, 2, [40] * 30 + [41] * 30)
    case.enters(1, 125, 10, lav=40)
    case.crowd(20, 1, [20])
    case.crowd(20, 2, [30] * 60)
    case.enters(2, 125, 20, lav=25, toll=200)


def _average_is_of_cars_first(case: Case) -> None:
    case.report(_CROWD, 0, 10, spd=10)
    case.report(_CROWD, 30, 10, spd=30, feet=500)
    case.report(_CROWD + 1, 10, 10, spd=60)
    case.enters(1, 60, 10, lav=40)


def _minutes_without_traffic(case: Case) -> None:
    case.crowd(10, 1, [20] * 60)
    case.enters(1, 190, 10, lav=20)
    case.crowd(20, 1, [20] * 60)
    case.enters(2, 359, 20, lav=20)
    case.crowd(30, 1, [20] * 60)
    case.enters(3, 360, 30)


def _three_equal_reports_are_no_stop(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [0, 30, 60], 10)
        case.stand(car, [90], 10, feet=60)
    case.enters(1, 125, 10, lav=5)


def _four_equal_reports(case: Case) -> None:
    case.stand(0, [0, 30, 60, 90], 10)
    case.stand(1, [10, 40, 70, 100], 10)
    case.stand(0, [120], 10, feet=900)
    case.enters(1, 110, 10, lav=5)  # the minute of the detection
    case.enters(2, 130, 10, lav=9, crash=10)  # the minute of the clearing
    case.enters(3, 180, 10, lav=11)


def _five_equal_reports(case: Case) -> None:
    case.crash(0, 10, 125)
    case.enters(1, 179, 10, lav=5, crash=10)
    case.enters(2, 185, 10, lav=7)


def _repeated_delivery_is_no_report(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [0, 30, 30, 60, 60], 10)
        case.stand(car, [90], 10, feet=60)
    case.enters(1, 125, 10, lav=5)


def _lane_change_is_a_move(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [0, 30], 10)
        case.stand(car, [60, 90], 10, lane=3)
    case.enters(1, 125, 10, lav=5)


def _ramps_have_no_accidents(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [0, 30, 60, 90, 120], 10, lane=0)
        case.stand(car + 5, [0, 30, 60, 90, 120], 20, lane=4)
    case.enters(1, 125, 10, lav=5)
    case.enters(2, 125, 20, lav=5)


def _stopped_alone(case: Case) -> None:
    case.stand(0, [0, 30, 60, 90, 120], 10, feet=50)
    case.stand(1, [0, 30, 60, 90, 120], 10, feet=51)
    case.enters(1, 125, 10, lav=5)


def _pile_of_three(case: Case) -> None:
    for car, until in ((0, 200), (1, 320), (2, 320)):
        case.stand(car, list(range(car, until, 30)), 10)
        case.stand(car, [until + car], 10, feet=900)
    case.enters(1, 245, 10, lav=5, crash=10)  # one has gone, two still stand there
    case.enters(2, 325, 10, lav=6, crash=10)
    case.enters(3, 360, 10, lav=8)


def _nearest_of_two(case: Case) -> None:
    case.crash(0, 12, 305)
    case.crash(2, 14, 305)
    case.enters(1, 130, 10, crash=12)
    case.enters(2, 130, 13, crash=14)
    case.enters(3, 130, 9, crash=12)
    case.enters(4, 130, 7)
    case.enters(5, 130, 15)
    case.crash(4, 52, 305, east=False)
    case.crash(6, 50, 305, east=False)
    case.enters(6, 130, 54, crash=52, east=False)
    case.enters(7, 130, 51, crash=50, east=False)
    case.enters(8, 130, 57, east=False)


def _second_in_the_same_segment(case: Case) -> None:
    case.crash(0, 10, 125)
    for car in (2, 3):
        case.stand(car, [200, 230, 260, 290, 320], 10, feet=3_000)
        case.stand(car, [400], 10, feet=3_900)
    case.enters(1, 130, 10, lav=5, crash=10)
    case.enters(2, 190, 10, lav=7)
    case.enters(3, 310, 10, lav=8, crash=10)
    for car in (4, 5):  # where the first one was
        case.stand(car, [400, 430, 460, 490, 520], 10)
    case.enters(4, 545, 10, lav=6, crash=10)


def _ends_of_the_road(case: Case) -> None:
    case.crash(0, 0, 305)
    case.enters(1, 130, 0, lav=5, crash=0)
    case.crash(2, 99, 305)
    case.enters(3, 131, 95, crash=99)
    case.enters(4, 131, 94)
    case.crash(4, 0, 305, east=False)
    case.enters(5, 130, 4, crash=0, east=False)
    case.enters(6, 130, 5, east=False)
    case.crash(6, 99, 305, east=False)
    case.enters(7, 130, 99, lav=5, crash=99, east=False)
    case.enters(8, 130, 1, crash=0, east=False)


def _no_wrap_at_the_ends(case: Case) -> None:
    case.crash(0, 0, 305)
    case.enters(1, 130, 97)
    case.crash(2, 99, 305, east=False)
    case.enters(2, 130, 2, east=False)


def _detected_at_a_minutes_end(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [29, 59, 89, 119, 149, 179, 209], 10)
    case.enters(1, 119, 10, lav=5)
    case.enters(2, 120, 10, lav=9, crash=10)


def _detected_at_a_minutes_begin(case: Case) -> None:
    for car in (0, 1):
        case.stand(car, [30, 60, 90, 120, 150, 180, 210], 10)
    case.enters(1, 179, 10, lav=5)
    case.enters(2, 180, 10, lav=7, crash=10)


def _accident_makes_it_free(case: Case) -> None:
    case.crowd(10, 2, [20] * 60)
    case.crash(0, 14, 305)
    case.enters(1, 130, 10, lav=20, crash=14)
    case.crowd(30, 2, [20] * 60)
    case.enters(2, 130, 30, lav=20, toll=200)


def _first_report_on_an_exit(case: Case) -> None:
    case.report(1, 10, 10, lane=4)
    case.report(1, 40, 10, feet=900)
    case.enters(1, 70, 11)


def _tolled(case: Case, *segs: int) -> None:
    """Make entering these segments in the second minute cost 2."""
    for seg in segs:
        case.crowd(seg, 1, [20] * 51)


def _leaving_by_the_next_segment_costs(case: Case) -> None:
    _tolled(case, 10)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.report(1, 90, 11, lane=4)
    case.asks_balance(1, 89, 0)
    case.asks_balance(1, 90, 2)


def _leaving_by_the_same_segment_is_free(case: Case) -> None:
    _tolled(case, 10)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.report(1, 90, 10, lane=4, feet=900)
    case.report(1, 120, 11)
    case.tolls.append((case.car(1), 120, -1, 0))
    case.asks_balance(1, 150, 0)


def _two_segments_at_once(case: Case) -> None:
    _tolled(case, 10, 12)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.enters(1, 90, 12, lav=20, toll=2)
    case.enters(1, 119, 13)
    case.asks_balance(1, 100, 2)
    case.asks_balance(1, 119, 4)


def _back_after_60_and_61(case: Case) -> None:
    for car, after in ((1, 60), (2, 61)):
        case.enters(car, 70, 10)
        case.report(car, 100, 10, lane=4, feet=900)
        case.report(car, 100 + after, 10, lane=0, feet=2_000)
    case.tolls.append((case.car(2), 161, 30, 0))


def _back_without_having_left(case: Case) -> None:
    _tolled(case, 10)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.enters(1, 120, 11, lane=0)  # the same trip
    case.asks_balance(1, 130, 2)
    case.enters(2, 60, 10, lav=20, toll=2)
    case.enters(2, 121, 11, lane=0)  # another trip
    case.asks_balance(2, 130, 0)


def _gap_on_the_road_is_the_same_trip(case: Case) -> None:
    _tolled(case, 10)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.report(1, 200, 10, feet=900)
    case.enters(1, 230, 11)
    case.asks_balance(1, 230, 2)


def _another_expressway_keeps_the_balance(case: Case) -> None:
    _tolled(case, 10)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.enters(1, 90, 11)
    case.report(1, 110, 10, lane=0, xway=case.number + 1)
    case.tolls.append((case.car(1), 110, -1, 0))
    case.asks_balance(1, 110, 2)


def _here_from_another_expressway(case: Case) -> None:
    """Leave the number of this case to the case before it."""
    _tolled(case, 20)


def _query_in_the_second_of_a_charge(case: Case) -> None:
    _tolled(case, 10)
    case.asks_balance(1, 0, 0)
    case.enters(1, 60, 10, lav=20, toll=2)
    case.asks_balance(1, 60, 0)
    case.enters(1, 90, 11)
    case.asks_balance(1, 90, 2)
    case.asks_balance(2, 90, 0)


def _expenditures(case: Case) -> None:
    case.history += [(case.car(1), 7, case.number, 55), (case.car(1), 8, case.number, 56)]
    case.history += [(case.car(2), 7, case.number, 57), (case.car(1), 9, case.number + 1, 58)]
    case.asks_day(1, 0, 7, 55)
    case.asks_day(1, 30, 7, 55)
    case.asks_day(1, 30, 8, 56)
    case.asks_day(2, 30, 7, 57)
    case.asks_day(1, 31, 9, None)
    case.asks_day(1, 31, 0, None)
    case.asks_day(3, 31, 7, None)


def _last_second(case: Case) -> None:
    case.crowd(10, 9, [20] * 51)
    case.enters(1, 540, 10, lav=20, toll=2)
    case.enters(1, END_S - 1, 11)
    case.asks_balance(1, END_S - 1, 2)


_CASES: Final[tuple[Callable[[Case], None], ...]] = (
    _volume_50_and_51,
    _volume_counts_ramps,
    _volume_counts_a_car_once,
    _average_below_and_at_40,
    _average_of_thirds_is_exact,
    _average_of_minutes,
    _average_is_of_cars_first,
    _minutes_without_traffic,
    _three_equal_reports_are_no_stop,
    _four_equal_reports,
    _five_equal_reports,
    _repeated_delivery_is_no_report,
    _lane_change_is_a_move,
    _ramps_have_no_accidents,
    _stopped_alone,
    _pile_of_three,
    _nearest_of_two,
    _second_in_the_same_segment,
    _ends_of_the_road,
    _no_wrap_at_the_ends,
    _detected_at_a_minutes_end,
    _detected_at_a_minutes_begin,
    _accident_makes_it_free,
    _first_report_on_an_exit,
    _leaving_by_the_next_segment_costs,
    _leaving_by_the_same_segment_is_free,
    _two_segments_at_once,
    _back_after_60_and_61,
    _back_without_having_left,
    _gap_on_the_road_is_the_same_trip,
    _another_expressway_keeps_the_balance,
    _here_from_another_expressway,
    _query_in_the_second_of_a_charge,
    _expenditures,
    _last_second,
)


def cases() -> list[Case]:
    """Return all cases."""
    made = []
    for number, write in enumerate(_CASES):
        case = Case(write.__name__.lstrip("_"), number)
        write(case)
        made.append(case)
    return made


def world() -> World:
    """Return the input of all cases together. It arranges no trips beyond them."""
    every = cases()
    rows = [{**dict.fromkeys(INPUT, -1), **row} for case in every for row in case.rows]
    integers = dict.fromkeys(("vid", "day", "xway", "toll"), pl.Int64)
    history = pl.DataFrame(
        [row for case in every for row in case.history], schema=integers, orient="row"
    )
    return World(
        in_order(pl.DataFrame(rows, schema=dict.fromkeys(INPUT, pl.Int32))),
        history,
        pl.DataFrame(),
        pl.DataFrame(),
    )
