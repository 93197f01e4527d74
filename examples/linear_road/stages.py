"""The stages of Linear Road, with state of their own that takes a second at a time.

Theory of operation. Spark gathers what a second brings for a road (one expressway and direction),
or for a group of accounts, into one row with an array; the processors work on such arrays with
numpy. So Python is called once per second and road, not once per car, and a backlog of hours takes
the same work per second. A road decides by itself all but the balances, which span roads: so these
are a stage of their own, which reads what the roads charge.

Within a minute tolls do not change: they follow from the averages of the five minutes before, the
volume of the last one, and the accidents that lasted when the minute began. So prices are made once
a minute, with exact fractions: an average of 39.99999 must not be 40.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from anabranch.stateful import BatchSafeProcessor, Timers, transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Found = tuple[tuple[Any, ...] | None, Iterable[Row]]

TOLL: Final = 0
ACCIDENT: Final = 1
BALANCE: Final = 2
EXPENDITURE: Final = 3
CHARGE: Final = 5
HISTORY: Final = 6
"""Types of rows: those of the benchmark, and two more. A charge is no answer, but what ``accounts``
reads of the roads.
"""

_SEGMENTS: Final = 100
_ENTRY, _EXIT = 0, 4
_NEW_TRIP_AFTER_S: Final = 60
_STOPPED_AFTER: Final = 4
"""Equal reports after which a car counts as stopped."""
_FREE_CARS: Final = 50
_FREE_MPH: Final = 40
_MINUTES: Final = 5
_REACH: Final = 4
"""Segments before an accident whose cars are told of it."""

REPORT: Final = ("vid", "spd", "lane", "seg", "pos")
"""Columns of a report, in the order in which those of one second count."""
ENTRY: Final = ("kind", "vid", "day", "xway", "qid", "toll")
"""Columns of a charge, a query or a line of the history."""

_CAR: Final = np.dtype(
    [
        ("vid", "i4"),
        ("time", "i4"),
        ("lane", "i4"),
        ("seg", "i4"),
        ("pos", "i4"),
        ("equal", "i4"),  # reports from this place in a row
        ("quoted", "i4"),  # toll of the segment, not charged yet; 0 if there is none
    ]
)
_SPEED: Final = np.dtype([("seg", "i4"), ("vid", "i4"), ("spd", "i4")])
_PRICE: Final = np.dtype([("lav", "i4"), ("toll", "i4"), ("crash", "i4")])
_NOTICE: Final = Row("type", "vid", "time", "lav", "toll", "seg", "event_time")
_ANSWER: Final = Row("type", "vid", "time", "result_time", "qid", "amount", "event_time")
_BALANCE: Final = np.dtype([("key", "i4"), ("amount", "i4")])
"""Balance of a car. A second reads and writes those of all cars, so each byte counts."""
_DAY: Final = np.dtype([("key", "i8"), ("amount", "i4")])
"""Toll of a car, day and expressway."""


class Roads(BatchSafeProcessor):
    """Notifications and charges of one road, a row for each second with reports, which has an array
    for each column of REPORT.

    State: the minute that prices hold for; cars, sorted by number; speeds of this minute; averages
    of the last five as (minute, segment, numerator, denominator, cars); prices by segment.
    """

    state_schema = "minute INT, cars BINARY, speeds BINARY, averages STRING, prices BINARY"

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - a road without reports has nothing to say
    ) -> Found:
        """Take the reports of one second."""
        minute, cars_bytes, speeds_bytes, averages, prices_bytes = state or (0, b"", b"", "[]", b"")
        cars = np.frombuffer(cars_bytes, _CAR)
        now = row.time // 60 + 1
        if now != minute:
            speeds = np.frombuffer(speeds_bytes, _SPEED)
            averages = _with_minute(averages, minute, now, speeds)
            prices_bytes = _prices(averages, now, cars, east=key[1] == 0).tobytes()
            speeds_bytes = b""
        prices = np.frombuffer(prices_bytes, _PRICE)
        reports = np.array([row[name] for name in REPORT], "i4").T
        road = key[0] * 2 + key[1]
        results: list[Row] = []
        charged: dict[int, int] = {}
        for each in _one_per_car(reports):
            cars, entering, charges = _move(cars, each, row.time, prices)
            for vid, toll in charges:
                charged[vid] = charged.get(vid, 0) + toll
            results += _notifications(row, entering, prices)
        results += [
            _NOTICE(CHARGE, vid, row.time, None, toll, road, row.event_time)
            for vid, toll in sorted(charged.items())
        ]
        speeds = np.empty(len(reports), _SPEED)
        speeds["seg"], speeds["vid"], speeds["spd"] = reports[:, 3], reports[:, 0], reports[:, 1]
        speeds_bytes += speeds.tobytes()
        return (now, cars.tobytes(), speeds_bytes, averages, prices_bytes), results


def _one_per_car(reports: Any) -> Iterable[Any]:
    """Split the reports of a second, sorted by car, into rounds with one report of each car."""
    while len(reports):
        is_first = np.ones(len(reports), bool)
        is_first[1:] = reports[1:, 0] != reports[:-1, 0]
        yield reports[is_first]
        reports = reports[~is_first]


def _move(
    cars: Any, reports: Any, time: int, prices: Any
) -> tuple[Any, Any, list[tuple[int, int]]]:
    """Take one report of each car. Return the cars, the (car, segment) that are to be notified, and
    the (car, toll) that are charged.
    """
    vid, _, lane, seg, pos = reports.T
    at = np.searchsorted(cars["vid"], vid)
    is_known = np.zeros(len(vid), bool)
    inside = at < len(cars)
    is_known[inside] = cars["vid"][at[inside]] == vid[inside]
    before = np.zeros(len(vid), _CAR)
    before[is_known] = cars[at[is_known]]
    begins = ~is_known | ((lane == _ENTRY) & (time - before["time"] > _NEW_TRIP_AFTER_S))
    enters = begins | (seg != before["seg"])
    is_charged = enters & ~begins & (before["quoted"] > 0)
    is_same = ~begins & (lane == before["lane"]) & (seg == before["seg"]) & (pos == before["pos"])
    notified = enters & (lane != _EXIT)

    after = np.empty(len(vid), _CAR)
    after["vid"], after["time"], after["lane"], after["seg"], after["pos"] = (
        vid,
        time,
        lane,
        seg,
        pos,
    )
    after["equal"] = np.where(is_same, before["equal"] + 1, 1)
    after["quoted"] = np.where(enters, prices["toll"][seg], before["quoted"])
    after["quoted"][lane == _EXIT] = 0

    charges = list(
        zip(vid[is_charged].tolist(), before["quoted"][is_charged].tolist(), strict=True)
    )
    cars = cars.copy()
    cars[at[is_known]] = after[is_known]
    cars = np.insert(cars, at[~is_known], after[~is_known])
    return cars, reports[notified][:, [0, 3]], charges


def _notifications(row: Row, entering: Any, prices: Any) -> Iterable[Row]:
    at, time = row.event_time, row.time
    found = prices[entering[:, 1]].tolist()
    for (vid, seg), (lav, toll, crash) in zip(entering.tolist(), found, strict=True):
        yield _NOTICE(TOLL, vid, time, lav, toll, seg, at)
        if crash >= 0:
            yield _NOTICE(ACCIDENT, vid, time, None, None, crash, at)


def _with_minute(averages: str, minute: int, now: int, speeds: Any) -> str:
    """Return the averages that matter from minute ``now`` on, with those of ``minute``."""
    kept = [each for each in json.loads(averages) if each[0] >= now - _MINUTES]
    if minute >= now - _MINUTES and len(speeds):
        cells = speeds["seg"].astype("i8") << 32 | speeds["vid"]
        cell, place = np.unique(cells, return_inverse=True)
        total = np.bincount(place, speeds["spd"]).astype("i8")  # exact: far below 2^53
        count = np.bincount(place)
        for seg in np.unique(cell >> 32).tolist():
            is_here = cell >> 32 == seg
            sums = Fraction(0)
            for reports in np.unique(count[is_here]).tolist():
                sums += Fraction(int(total[is_here & (count == reports)].sum()), reports)
            cars = int(is_here.sum())
            mean = sums / cars
            kept.append([minute, seg, mean.numerator, mean.denominator, cars])
    return json.dumps(kept)


def _prices(averages: str, minute: int, cars: Any, *, east: bool) -> Any:
    """Return average, toll and nearest accident (or -1) of each segment in ``minute``."""
    means: dict[int, list[Fraction]] = {}
    volumes: dict[int, int] = {}
    for measured, seg, numerator, denominator, count in json.loads(averages):
        means.setdefault(seg, []).append(Fraction(numerator, denominator))
        if measured == minute - 1:
            volumes[seg] = count
    is_stopped = (
        (cars["equal"] >= _STOPPED_AFTER) & (cars["lane"] > _ENTRY) & (cars["lane"] < _EXIT)
    )
    places, count = np.unique(cars[is_stopped][["lane", "pos", "seg"]], return_counts=True)
    crashes = set(places["seg"][count >= 2].tolist())
    prices = np.zeros(_SEGMENTS, _PRICE)
    for seg in range(_SEGMENTS):
        lav = int(sum(means[seg], Fraction(0)) / len(means[seg])) if seg in means else -1
        ahead = (seg + distance * (1 if east else -1) for distance in range(_REACH + 1))
        crash = next((each for each in ahead if each in crashes), -1)
        above = volumes.get(seg, 0) - _FREE_CARS
        is_free = lav >= _FREE_MPH or above <= 0 or crash >= 0
        prices[seg] = (lav, 0 if is_free else 2 * above * above, crash)
    return prices


def _window(*, ends_ms: int) -> Column:
    """Return windows of a second that end ``ends_ms`` after the end of a second of the run.

    The lines of a second are in the first milliseconds of theirs. The windows of `roads` end a
    millisecond before the second does, so that its results are still within it: `accounts` then
    finds the charges of a second and its queries in one window, which ends with the second.
    """
    return F.window("event_time", "1 second", startTime=f"{(1_000 + ends_ms) % 1_000} milliseconds")


def _arrays(structs: str, names: Iterable[str]) -> list[Column]:
    """Return an array for each field of the structs in an array. Python gets lists of numbers,
    which numpy takes at once: one object for each struct takes forty times as long.
    """
    return [F.col(f"{structs}.{name}").alias(name) for name in names]


def _time_of(window: str) -> Column:
    return F.window_time(window).alias("event_time")


def roads(traffic: DataFrame) -> DataFrame:
    """Return toll notifications, accident notifications and charges.

    A report that was delivered twice counts once: the reports of a second are a set.
    """
    seconds = (
        traffic.where("type = 0")
        .groupBy(_window(ends_ms=-1).alias("second"), "xway", "dir", "time")
        .agg(F.sort_array(F.collect_set(F.struct(*REPORT))).alias("reports"))
        .select("xway", "dir", "time", *_arrays("reports", REPORT), _time_of("second"))
    )
    schema = "type INT, vid INT, time INT, lav INT, toll INT, seg INT, event_time TIMESTAMP"
    return transform(seconds, ["xway", "dir"], Roads(), schema)


class Accounts(BatchSafeProcessor):
    """Balances and expenditures of a group of cars, a row for each second in which one of them is
    charged or asks, which has an array for each column of ENTRY.

    State: balances by car; tolls of earlier days by car, day and expressway.
    """

    state_schema = "balances BINARY, days BINARY"

    def row(
        self,
        key: tuple[Any, ...],  # noqa: ARG002 - the cars of a group have nothing in common
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - accounts never expire
    ) -> Found:
        """Take what happened in one second: history and charges before queries."""
        balance_bytes, day_bytes = state or (b"", b"")
        balances, days = np.frombuffer(balance_bytes, _BALANCE), np.frombuffer(day_bytes, _DAY)
        entries = np.array([row[name] for name in ENTRY], "i8").T
        kind = entries[:, 0]
        history, charges = entries[kind == HISTORY], entries[kind == CHARGE]
        days = _added(days, _day_key(history), history[:, 5])
        balances = _added(balances, charges[:, 1], charges[:, 5])
        asked = entries[(kind == BALANCE) | (kind == EXPENDITURE)]
        by_car = _amounts(balances, asked[:, 1], missing=0).tolist()
        by_day = _amounts(days, _day_key(asked), missing=-1).tolist()
        results = []
        for entry, balance, toll in zip(asked.tolist(), by_car, by_day, strict=True):
            what, vid, _, _, qid, _ = entry
            amount = balance if what == BALANCE else toll
            if amount >= 0:  # a day without a row has no answer
                as_of = row.time if what == BALANCE else None
                results.append(_ANSWER(what, vid, row.time, as_of, qid, amount, row.event_time))
        return (balances.tobytes(), days.tobytes()), results


def _day_key(entries: Any) -> Any:
    """Return one number for car, day and expressway."""
    return (entries[:, 1] << 20) + (entries[:, 2] << 10) + entries[:, 3]


def _find(table: Any, keys: Any) -> tuple[Any, Any]:
    """Return where ``keys`` are, or would be, and which of them are there."""
    at = np.searchsorted(table["key"], keys)
    is_known = np.zeros(len(keys), bool)
    inside = at < len(table)
    is_known[inside] = table["key"][at[inside]] == keys[inside]
    return at, is_known


def _added(table: Any, keys: Any, amounts: Any) -> Any:
    """Return the table with these amounts added."""
    keys, place = np.unique(keys, return_inverse=True)
    new = np.empty(len(keys), table.dtype)
    new["key"], new["amount"] = keys, 0
    np.add.at(new["amount"], place, amounts)
    at, is_known = _find(table, keys)
    table = table.copy()
    table["amount"][at[is_known]] += new["amount"][is_known]
    return np.insert(table, at[~is_known], new[~is_known])


def _amounts(table: Any, keys: Any, *, missing: int) -> Any:
    at, is_known = _find(table, keys)
    found = np.full(len(keys), missing, "i8")
    found[is_known] = table["amount"][at[is_known]]
    return found


def accounts(
    roads: DataFrame, traffic: DataFrame, history: DataFrame, *, groups: int = 8
) -> DataFrame:
    """Return the answers to queries about balances and earlier days. A balance is that of the
    second of its query, whose charges count.

    ``groups`` is the number of shares of the cars, whose states are apart.
    """
    nothing = F.lit(-1)
    charges = roads.where(f"type = {CHARGE}").select(
        F.lit(CHARGE).alias("kind"),
        "vid",
        nothing.alias("day"),
        F.col("seg").alias("xway"),
        nothing.alias("qid"),
        "toll",
        "time",
        "event_time",
    )
    queries = traffic.where(f"type IN ({BALANCE}, {EXPENDITURE})").select(
        F.col("type").alias("kind"),
        "vid",
        "day",
        "xway",
        "qid",
        nothing.alias("toll"),
        "time",
        "event_time",
    )
    days = history.select(
        F.lit(HISTORY).alias("kind"),
        "vid",
        "day",
        "xway",
        nothing.alias("qid"),
        "toll",
        nothing.alias("time"),
        "event_time",
    )
    seconds = (
        charges.unionByName(queries)
        .unionByName(days)
        .groupBy(
            _window(ends_ms=0).alias("second"),
            "time",
            (F.col("vid") % groups).alias("part"),
        )
        .agg(F.sort_array(F.collect_set(F.struct(*ENTRY))).alias("entries"))
        .select("part", "time", *_arrays("entries", ENTRY), _time_of("second"))
    )
    schema = (
        "type INT, vid INT, time INT, result_time INT, qid INT, amount BIGINT, event_time TIMESTAMP"
    )
    return transform(seconds, ["part"], Accounts(), schema)
