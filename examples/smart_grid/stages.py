"""Stages of the smart grid: readings gathered by plug, load predictions, outliers.

Theory of operation. All numbers are integers (milliwatts, counts), so sums, averages and medians do
not depend on the order of rows. ``panes`` gathers the load readings of a plug in 30 s as a
histogram; a repeated reading is one element of a set. Its state is the open pane.

``predictions`` keeps one state for each house, slice length and slice *of the day*. A pane goes to
two of them: to its own slice, whose averages are the history of later days, and to the slice after
next, which it predicts. So a batch reads and writes what it changes, however many days there are.

``outliers`` needs the median over all plugs, so the state of a window is one. It holds the
histograms of 120 steps: a plug that measures the same load for minutes has one entry a step. They
stay in the order of plugs and loads, in which a step is put in its places: a new order of all of
them would cost more than everything else.

A pane costs much the same however few readings it has, unless plugs are columns: what is a row for
each plug costs Python some microseconds each time it passes from Spark or to it. So plugs come to a
processor as arrays, its results leave it as arrays, and Spark makes rows of them.
"""

from __future__ import annotations

from collections.abc import Iterable
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
_PLUGS: Final = 1 << _PLUG_BITS
_MIX: Final = 0x9E3779B97F4A7C15
"""Odd factor that spreads the numbers of plugs."""
_RANKS: Final = 1_000
_PLACES_MAX: Final = 1 << 62
"""Limit of the numbers that stand for a plug and a load together."""
_HOUSE: Final = -1
"""Place that stands for the whole house."""

_SUMS: Final = np.dtype([("slice", "i8"), ("place", "i8"), ("total", "i8"), ("count", "i8")])
_SHARES: Final = np.dtype([("house", "i4"), ("above", "i4"), ("plugs", "i4")])
_PREDICTIONS: Final = Row("house_id", "minutes", "start", "places", "loads_mw", "event_time")
_OUTLIERS: Final = Row("hours", "house_id", "start", "stop", "above", "plugs", "event_time")

Found = tuple[tuple[Any, ...] | None, Iterable[Row]]


def changed(rows: pa.Table) -> Any:
    """Return how much each reading matters: 0 work, which no stage uses, 1 a load, and 2 or more a
    load that changed by more than ``STEADY_W`` since the last such reading of its plug in ``rows``.
    Of these, each plug has a number of its own: where not all fit, some plugs keep theirs and have
    results, and the others cost the stages behind nothing.
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
            matters[place] = 2 + (key * _MIX >> 32) % _RANKS
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
    plug = F.struct(_place().alias("place"), "total_mw", "readings")
    houses = (
        panes.groupBy(_window(PANE_S), "house_id")
        .agg(F.sort_array(F.collect_set(plug)).alias("plugs"))
        .select(
            "house_id",
            F.col("plugs.place").alias("places"),
            F.col("plugs.total_mw").alias("totals_mw"),
            F.col("plugs.readings").alias("readings"),
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
    plugs = ("places", "totals_mw", "readings")
    keyed = houses.select("house_id", *plugs, "event_time", F.explode(roles).alias("role")).select(
        "house_id",
        "role.minutes",
        F.expr("(role.slice + role.ahead) % (1440 div role.minutes)").alias("of_day"),
        "role.slice",
        "role.ahead",
        *plugs,
        "event_time",
    )
    schema = (
        "house_id INT, minutes INT, start BIGINT, places ARRAY<BIGINT>, loads_mw ARRAY<BIGINT>,"
        " event_time TIMESTAMP"
    )
    found = transform(keyed, ["house_id", "minutes", "of_day"], Predictions(), schema)
    each = F.explode(F.arrays_zip("places", "loads_mw")).alias("each")
    is_plug = F.col("each.places") != _HOUSE
    return found.select("house_id", "minutes", "start", "event_time", each).select(
        "house_id",
        F.when(is_plug, F.shiftright("each.places", _PLUG_BITS)).cast("int").alias("household_id"),
        F.when(is_plug, F.col("each.places").bitwiseAND(_PLUGS - 1)).cast("int").alias("plug_id"),
        "minutes",
        "start",
        F.col("each.loads_mw").alias("load_mw"),
        "event_time",
    )


def outliers(panes: DataFrame) -> DataFrame:
    """Return the number of plugs of a house whose median load in the last hour (24 hours) is above
    the median of all loads in that time, when the share changes.
    """
    plug = (F.shiftleft(F.col("house_id").cast("bigint"), 2 * _PLUG_BITS) + _place()).alias("plug")
    pane = F.struct(plug, "event_time", "loads_mw", "counts")
    steps = [
        panes.groupBy(_window(step_s))
        .agg(F.sort_array(F.collect_set(pane)).alias("panes"))
        .select(
            F.lit(hours).alias("hours"),
            F.unix_seconds("window.end").alias("stop"),
            F.col("panes.plug").alias("plugs"),
            F.transform("panes", lambda each: F.size(each["loads_mw"])).alias("sizes"),
            F.flatten("panes.loads_mw").alias("loads_mw"),
            F.flatten("panes.counts").alias("counts"),
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


def _place() -> Column:
    """Return one number for household and plug, unique within the house."""
    household = F.col("household_id").cast("bigint")
    return F.shiftleft(household, _PLUG_BITS) + F.col("plug_id")


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
        new = np.empty(len(row.places), _SUMS)
        new["slice"], new["place"] = row.slice, row.places
        new["total"], new["count"] = row.totals_mw, row.readings
        house, minutes, _ = key
        history = np.frombuffer(history_bytes, _SUMS)
        oldest = row.slice + row.ahead - HISTORY_DAYS * (_DAY_S // 60 // minutes)
        if len(history) and history["slice"][0] < oldest:
            history = history[history["slice"] >= oldest]
        if not row.ahead:
            return (_added(history, new).tobytes(), current_bytes), []
        current = np.frombuffer(current_bytes, _SUMS)
        current = _added(current[current["slice"] == row.slice], new)
        places, loads_mw = _predicted(current, history)
        start = (row.slice + row.ahead) * minutes * 60
        made = _PREDICTIONS(
            house, minutes, start, places.tolist(), loads_mw.tolist(), row.event_time
        )
        return (history.tobytes(), current.tobytes()), [made]


def _added(table: Any, new: Any) -> Any:
    """Return the sums of both tables by slice and place, in their order. ``new`` is of one slice,
    in the order of places.
    """
    before = table[max(0, len(table) - len(new)) :]
    if np.array_equal(before[["slice", "place"]], new[["slice", "place"]]):
        found = table.copy()  # as mostly: the same plugs as in the pane before
        for name in ("total", "count"):
            found[name][len(table) - len(new) :] += new[name]
        return found
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


def _predicted(current: Any, history: Any) -> tuple[Any, Any]:
    """Return places and predicted loads, in mW, of the house and of each plug in ``current``."""
    now_mw = _averages(current)
    places = np.concatenate(([_HOUSE], current["place"]))
    if not len(history):  # the average is all there is
        return places, np.concatenate(([now_mw.sum()], now_mw))
    past_mw = _averages(history)
    slices, of_slice = np.unique(history["slice"], return_inverse=True)
    of_house = np.zeros(len(slices), "i8")
    np.add.at(of_house, of_slice, past_mw)  # the load of a house is the sum of its plugs' averages
    known, twice = medians(
        np.concatenate((history["place"], np.full(len(slices), _HOUSE))),
        np.concatenate((past_mw, of_house)),
        np.ones(len(history) + len(slices), "i8"),
    )
    now_mw = np.concatenate(([now_mw.sum()], now_mw))
    at = np.searchsorted(known, places)
    has_history = at < len(known)
    has_history[has_history] = known[at[has_history]] == places[has_history]
    predicted = now_mw.copy()
    predicted[has_history] = (2 * now_mw[has_history] + twice[at[has_history]] + 2) // 4
    return places, predicted


def _averages(sums: Any) -> Any:
    """Return the averages in whole mW, halves rounded up."""
    return (2 * sums["total"] + sums["count"]) // (2 * sums["count"])


def medians(groups: Any, values: Any, counts: Any) -> tuple[Any, Any]:
    """Return the distinct ``groups`` in order, and twice the median of the values of each; value
    number i is there ``counts[i]`` times.
    """
    order = np.lexsort((values, groups))
    return _sorted_medians(groups[order], values[order], counts[order])


def _sorted_medians(groups: Any, values: Any, counts: Any) -> tuple[Any, Any]:
    """Return the same of values in the order of groups and values."""
    starts = _starts(groups)
    found = groups[starts]
    if not len(found):
        return found, np.zeros(0, "i8")
    upto = np.cumsum(counts)
    sizes = np.add.reduceat(counts, starts)
    before = upto[starts] - counts[starts]
    low = np.searchsorted(upto, before + (sizes - 1) // 2, side="right")
    high = np.searchsorted(upto, before + sizes // 2, side="right")
    return found, values[low] + values[high]


def _starts(*columns: Any) -> Any:
    """Return the places at which one of the columns has another value than before."""
    is_first = np.ones(len(columns[0]), bool)
    is_first[1:] = False
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_first)


class Outliers(BatchSafeProcessor):
    """Shares of a window of one length.

    State: the histograms of the window's steps, in the order of plugs and loads, and the shares
    that were last reported. The histograms are columns: the plugs, the number of entries of each,
    and of each entry its load, the end of its step and the number of readings.
    """

    state_schema = (
        "plugs BINARY, sizes BINARY, loads BINARY, stops BINARY, counts BINARY, shares BINARY"
    )

    def row(
        self,
        key: tuple[Any, ...],
        row: Row,
        state: tuple[Any, ...] | None,
        timers: Timers,  # noqa: ARG002 - a window is evaluated when a step has readings
    ) -> Found:
        """Take one step of the window."""
        *packed, shares_bytes = state or (b"",) * 6
        (hours,) = key
        start = row.stop - hours * _HOUR_S
        plugs, sizes, *entries = map(_unpacked, packed)
        steps = np.repeat(plugs, sizes), *entries
        is_in = steps[2] > start
        if not is_in.all():
            steps = tuple(column[is_in] for column in steps)
        steps = _merged(steps, _step(row))
        starts = _starts(steps[0])
        sizes = np.diff(starts, append=len(steps[0]))
        shares = _shares(*steps)
        before = {share[0]: share for share in np.frombuffer(shares_bytes, _SHARES).tolist()}
        rows = [
            _OUTLIERS(hours, house, start, row.stop, above, plugs, row.event_time)
            for house, above, plugs in shares.tolist()
            if house not in before or above * before[house][2] != before[house][1] * plugs
        ]
        columns = (steps[0][starts], sizes, *steps[1:])
        return (*map(_packed, columns), shares.tobytes()), rows


def _packed(numbers: Any) -> bytes:
    """Return whole numbers in as few bytes each as the differences between them need: the state is
    read and written with each batch.
    """
    least = numbers.min()
    differences = (numbers - least).view("u8")
    kind = np.min_scalar_type(differences.max())
    head = np.array([least, kind.itemsize], "i8")
    return bytes(head.tobytes() + differences.astype(kind).tobytes())


def _unpacked(found: bytes) -> Any:
    """Return the numbers of ``_packed``; none of nothing."""
    if not found:
        return np.zeros(0, "i8")
    head = np.dtype("i8").itemsize * 2
    least, width = np.frombuffer(found[:head], "i8")
    return np.frombuffer(found, f"u{width}", offset=head).astype("i8") + least


def _step(row: Row) -> tuple[Any, ...]:
    """Return plugs, loads, ends and counts of the panes of one step, one entry for each plug and
    load.
    """
    plugs = np.repeat(np.array(row.plugs, "i8"), np.array(row.sizes, "i8"))
    loads, counts = np.array(row.loads_mw, "i8"), np.array(row.counts, "i8")
    order = np.lexsort((loads, plugs))
    plugs, loads, counts = plugs[order], loads[order], counts[order]
    starts = _starts(plugs, loads)
    stops = np.full(len(starts), row.stop)
    return plugs[starts], loads[starts], stops, np.add.reduceat(counts, starts)


def _merged(steps: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return all entries in the order of plugs and loads, in which both are."""
    plugs = np.unique(np.concatenate((steps[0][_starts(steps[0])], new[0])))
    least = min(column.min(initial=0) for column in (steps[1], new[1]))
    most = max(column.max(initial=0) for column in (steps[1], new[1]))
    if (int(most) - int(least) + 1) * len(plugs) >= _PLACES_MAX:
        together = tuple(map(np.concatenate, zip(steps, new, strict=True)))
        order = np.lexsort((together[1], together[0]))
        return tuple(column[order] for column in together)
    width = most - least + 1
    old_places, new_places = (
        np.searchsorted(plugs, column) * width + loads - least
        for column, loads in ((steps[0], steps[1]), (new[0], new[1]))
    )
    at = np.searchsorted(old_places, new_places)
    return tuple(np.insert(*pair) for pair in zip(steps, (at,) * len(new), new, strict=True))


def _shares(plugs: Any, loads: Any, stops: Any, counts: Any) -> Any:  # noqa: ARG001
    """Return for each house how many of its plugs have a median above that of all loads."""
    order = np.argsort(loads)
    (overall,) = _sorted_medians(np.zeros(len(loads), "i8"), loads[order], counts[order])[1]
    found, twice = _sorted_medians(plugs, loads, counts)
    houses, of_house = np.unique(found >> 2 * _PLUG_BITS, return_inverse=True)
    shares = np.empty(len(houses), _SHARES)
    shares["house"] = houses
    shares["plugs"] = np.bincount(of_house)
    shares["above"] = np.bincount(of_house, twice > overall)
    return shares
