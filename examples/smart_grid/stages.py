"""Stages of the smart grid: readings gathered by plug, load predictions, outliers.

Theory of operation. All numbers are integers (milliwatts, counts), so sums, averages and medians do
not depend on the order of rows. ``panes`` gathers the load readings of a plug in 30 s as a
histogram; a repeated reading is one element of a set. Its state is the open pane.

``predictions`` keeps one state for each house, slice length and slice *of the day*. A pane goes to
two of them: to its own slice, whose averages are the history of later days, and to the slice after
next, which it predicts. So a batch reads and writes what it changes, however many days there are.

``outliers`` needs the median over all plugs, so the state of a window is one. It holds the
histograms of 120 steps: a plug that measures the same load for minutes has one entry a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from anabranch.stateful import BatchSafeProcessor, Timers, transform

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

LOAD: Final = 1
"""``property`` of load readings."""
PANE_S: Final = 30
SLICES_MIN: Final = (1, 5, 15, 60, 120)
"""Lengths of the slices that are predicted, in minutes. Each divides a day."""
AHEAD: Final = 2
"""Distance of the predicted slice from the current one, in slices."""
HISTORY_DAYS: Final = 31
"""Days whose slices a prediction may use: the challenge has a month. Bounds the state."""
WINDOWS: Final = ((1, 30), (24, 720))
"""Windows of outliers, as (length in hours, step in seconds): 120 steps each."""
STEADY_W: Final = 5.0
"""Change of the load, in W, from which a reading matters under overload."""

_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_PLUG_BITS: Final = 20
"""Width of the plug's number beside the household's in one integer."""

_SUMS: Final = np.dtype([("slice", "i8"), ("place", "i8"), ("total", "i8"), ("count", "i8")])
_STEPS: Final = np.dtype(
    [("stop", "i8"), ("house", "i4"), ("place", "i8"), ("load", "i8"), ("count", "i4")]
)
_SHARES: Final = np.dtype([("house", "i4"), ("above", "i4"), ("plugs", "i4")])
_PREDICTION: Final = Row(
    "house_id", "household_id", "plug_id", "minutes", "start", "load_mw", "event_time"
)
_OUTLIERS: Final = Row("hours", "house_id", "start", "stop", "above", "plugs", "event_time")

Found = tuple[tuple[Any, ...] | None, Iterable[Row]]


def changed(rows: pa.Table) -> Any:
    """Return how much each reading matters: 2 a load that changed by more than ``STEADY_W`` since
    the last such reading of its plug in ``rows``, 1 another load, 0 work, which no stage uses.
    """
    value, second = rows["value"].to_numpy(), rows["timestamp"].to_numpy()
    house, household, number = (
        rows[name].to_numpy().astype("i8") for name in ("house_id", "household_id", "plug_id")
    )
    plug = (((house << _PLUG_BITS) + household) << _PLUG_BITS) + number
    is_load = rows["property"].to_numpy() == LOAD
    matters = np.where(is_load, 1, 0)
    places = np.flatnonzero(is_load)
    places = places[np.lexsort((value[places], second[places]))]
    last: dict[int, float] = {}
    for place, key, load in zip(
        places.tolist(), plug[places].tolist(), value[places].tolist(), strict=True
    ):
        kept = last.get(key)
        if kept is None or abs(load - kept) > STEADY_W:
            last[key] = load
            matters[place] = 2
    return matters


def panes(readings: DataFrame) -> DataFrame:
    """Return the loads of each plug in each pane of 30 s, as a histogram.

    A reading that equals another of its plug in second and value was delivered twice.
    """
    reading = F.struct("timestamp", F.round(F.col("value") * 1_000).cast("bigint").alias("load_mw"))
    return (
        readings.where(F.col("property") == LOAD)
        .groupBy(_window(PANE_S), "house_id", "household_id", "plug_id")
        .agg(F.sort_array(F.collect_set(reading)).alias("found"))
        .withColumn("all_mw", F.transform("found", lambda each: each["load_mw"]))
        .withColumn("loads_mw", F.array_distinct("all_mw"))
        .select(
            "house_id",
            "household_id",
            "plug_id",
            "loads_mw",
            F.expr("transform(loads_mw, v -> size(filter(all_mw, x -> x = v)))").alias("counts"),
            F.expr("aggregate(all_mw, 0L, (sum, x) -> sum + x)").alias("total_mw"),
            F.size("all_mw").alias("readings"),
            # within the pane: windows of the next stage contain their beginning, not their end
            F.expr("window.end - INTERVAL 1 MILLISECOND").alias("event_time"),
        )
    )


def predictions(panes: DataFrame) -> DataFrame:
    """Return the predicted load of each plug and house (no household, no plug), for each slice
    length, every 30 s.
    """
    plug = F.struct("household_id", "plug_id", "total_mw", "readings")
    houses = (
        panes.groupBy(_window(PANE_S), "house_id")
        .agg(F.sort_array(F.collect_set(plug)).alias("plugs"))
        .select(
            "house_id",
            "plugs",
            F.unix_seconds("window.start").alias("second"),
            F.col("window.end").alias("event_time"),
        )
    )
    roles = F.array(
        *(
            F.struct(
                F.lit(minutes).alias("minutes"),
                F.floor(F.col("second") / (60 * minutes)).alias("slice"),
                F.lit(ahead).alias("ahead"),
            )
            for minutes in SLICES_MIN
            for ahead in (0, AHEAD)
        )
    )
    keyed = houses.select("house_id", "plugs", "event_time", F.explode(roles).alias("role")).select(
        "house_id",
        "role.minutes",
        F.expr("(role.slice + role.ahead) % (1440 div role.minutes)").alias("of_day"),
        "role.slice",
        "role.ahead",
        "plugs",
        "event_time",
    )
    schema = (
        "house_id INT, household_id INT, plug_id INT, minutes INT, start BIGINT, load_mw BIGINT,"
        " event_time TIMESTAMP"
    )
    return transform(keyed, ["house_id", "minutes", "of_day"], Predictions(), schema)


def outliers(panes: DataFrame) -> DataFrame:
    """Return the number of plugs of a house whose median load in the last hour (24 hours) is above
    the median of all loads in that time, when the share changes.
    """
    pane = F.struct("house_id", "household_id", "plug_id", "event_time", "loads_mw", "counts")
    steps = [
        panes.groupBy(_window(step_s))
        .agg(F.sort_array(F.collect_set(pane)).alias("panes"))
        .select(
            F.lit(hours).alias("hours"),
            F.unix_seconds("window.end").alias("stop"),
            "panes",
            F.col("window.end").alias("event_time"),
        )
        for hours, step_s in WINDOWS
    ]
    schema = (
        "hours INT, house_id INT, start BIGINT, stop BIGINT, above INT, plugs INT,"
        " event_time TIMESTAMP"
    )
    together = reduce(lambda one, other: one.unionByName(other), steps)
    return transform(together, ["hours"], Outliers(), schema)


def _window(length_s: int) -> Column:
    return F.window("event_time", f"{length_s} seconds").alias("window")


class Predictions(BatchSafeProcessor):
    """Prediction of one slice of the day of one house.

    State: sums by plug of this slice on earlier days, and those of the slice two before it, today.
    """

    state_schema = "history BINARY, current BINARY"

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - a house without readings has no new prediction
    ) -> Found:
        """Take one pane of the house: as history, or as the slice that the prediction is from."""
        history_bytes, current_bytes = state or (b"", b"")
        new = np.array(
            [(row.slice, _place(each), each.total_mw, each.readings) for each in row.plugs],
            _SUMS,
        )
        house, minutes, _ = key
        history = np.frombuffer(history_bytes, _SUMS)
        oldest = row.slice + row.ahead - HISTORY_DAYS * (_DAY_S // 60 // minutes)
        history = history[history["slice"] >= oldest]
        if not row.ahead:
            return (_added(history, new).tobytes(), current_bytes), []
        current = np.frombuffer(current_bytes, _SUMS)
        current = _added(current[current["slice"] == row.slice], new)
        results = _predicted(current, history)
        start = (row.slice + row.ahead) * minutes * 60
        rows = [
            _PREDICTION(
                house,
                None if place < 0 else place >> _PLUG_BITS,
                None if place < 0 else place & ((1 << _PLUG_BITS) - 1),
                minutes,
                start,
                load_mw,
                row.event_time,
            )
            for place, load_mw in results
        ]
        return (history.tobytes(), current.tobytes()), rows


def _place(plug: Row) -> int:
    """Return one number for household and plug, unique within the house."""
    return int((plug.household_id << _PLUG_BITS) + plug.plug_id)


def _added(table: Any, new: Any) -> Any:
    """Return the sums of both tables by slice and place, in their order."""
    both = np.concatenate((table, new))
    both = both[np.lexsort((both["place"], both["slice"]))]
    is_first = np.ones(len(both), bool)
    same_slice = both["slice"][1:] == both["slice"][:-1]
    is_first[1:] = ~(same_slice & (both["place"][1:] == both["place"][:-1]))
    found = both[is_first]
    starts = np.flatnonzero(is_first)
    for name in ("total", "count"):
        found[name] = np.add.reduceat(both[name], starts)
    return found


_HOUSE: Final = -1
"""Place that stands for the whole house."""


def _predicted(current: Any, history: Any) -> list[tuple[int, int]]:
    """Return (place, predicted load in mW) of the house and of each plug in ``current``."""
    now_mw = _averages(current)
    past_mw = _averages(history)
    slices, of_slice = np.unique(history["slice"], return_inverse=True)
    of_house = np.zeros(len(slices), "i8")
    np.add.at(of_house, of_slice, past_mw)  # the load of a house is the sum of its plugs' averages
    known, twice = medians(
        np.concatenate((history["place"], np.full(len(slices), _HOUSE))),
        np.concatenate((past_mw, of_house)),
        np.ones(len(history) + len(slices), "i8"),
    )
    places = np.concatenate(([_HOUSE], current["place"]))
    now_mw = np.concatenate(([now_mw.sum()], now_mw))
    at = np.searchsorted(known, places)
    has_history = at < len(known)
    has_history[has_history] = known[at[has_history]] == places[has_history]
    predicted = now_mw.copy()  # without history the average is all there is
    predicted[has_history] = (2 * now_mw[has_history] + twice[at[has_history]] + 2) // 4
    return list(zip(places.tolist(), predicted.tolist(), strict=True))


def _averages(sums: Any) -> Any:
    """Return the averages in whole mW, halves rounded up."""
    return (2 * sums["total"] + sums["count"]) // (2 * sums["count"])


def medians(groups: Any, values: Any, counts: Any) -> tuple[Any, Any]:
    """Return the distinct ``groups`` in order, and twice the median of the values of each; value
    number i is there ``counts[i]`` times.
    """
    order = np.lexsort((values, groups))
    groups, values, counts = groups[order], values[order], counts[order]
    found, starts = np.unique(groups, return_index=True)
    if not len(found):
        return found, np.zeros(0, "i8")
    upto = np.cumsum(counts)
    sizes = np.add.reduceat(counts, starts)
    before = upto[starts] - counts[starts]
    low = np.searchsorted(upto, before + (sizes - 1) // 2, side="right")
    high = np.searchsorted(upto, before + sizes // 2, side="right")
    return found, values[low] + values[high]


class Outliers(BatchSafeProcessor):
    """Shares of a window of one length.

    State: the histograms of the window's steps, and the shares that were last reported.
    """

    state_schema = "steps BINARY, shares BINARY"

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - a window is evaluated when a step has readings
    ) -> Found:
        """Take one step of the window."""
        steps_bytes, shares_bytes = state or (b"", b"")
        (hours,) = key
        start = row.stop - hours * _HOUR_S
        steps = np.frombuffer(steps_bytes, _STEPS)
        steps = np.concatenate((steps[steps["stop"] > start], _step(row.stop, row.panes)))
        shares = _shares(steps)
        before = {share[0]: share for share in np.frombuffer(shares_bytes, _SHARES).tolist()}
        rows = [
            _OUTLIERS(hours, house, start, row.stop, above, plugs, row.event_time)
            for house, above, plugs in shares.tolist()
            if house not in before or above * before[house][2] != before[house][1] * plugs
        ]
        return (steps.tobytes(), shares.tobytes()), rows


def _step(stop: int, found: Sequence[Row]) -> Any:
    """Return the histograms of the panes that end within the step, one entry for each plug and
    load.
    """
    sizes = [len(each.loads_mw) for each in found]
    table = np.empty(sum(sizes), _STEPS)
    table["stop"] = stop
    table["house"] = np.repeat([each.house_id for each in found], sizes)
    table["place"] = np.repeat([_place(each) for each in found], sizes)
    table["load"] = [load for each in found for load in each.loads_mw]
    table["count"] = [count for each in found for count in each.counts]
    names = ["house", "place", "load"]
    keys, where = np.unique(table[names], return_inverse=True)
    merged = np.empty(len(keys), _STEPS)
    merged["stop"] = stop
    for name in names:
        merged[name] = keys[name]
    merged["count"] = np.bincount(where, table["count"], len(keys))
    return merged


def _shares(steps: Any) -> Any:
    """Return for each house how many of its plugs have a median above that of all loads."""
    counts = steps["count"].astype("i8")
    (overall,) = medians(np.zeros(len(steps), "i8"), steps["load"], counts)[1]
    plug = (steps["house"].astype("i8") << 2 * _PLUG_BITS) + steps["place"]
    plugs, twice = medians(plug, steps["load"], counts)
    houses, of_house = np.unique(plugs >> 2 * _PLUG_BITS, return_inverse=True)
    shares = np.empty(len(houses), _SHARES)
    shares["house"] = houses
    shares["plugs"] = np.bincount(of_house)
    shares["above"] = np.bincount(of_house, twice > overall)
    return shares
