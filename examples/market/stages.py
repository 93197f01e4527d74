"""Stages of the regions and of billing: together the query of Medusa's Figure 1, whose boxes have
the letters (a) to (h). A toll is Linear Road's: it rises with the square of the number of cars
above a free number, where they are slow.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

MINUTE = "5 seconds"
"""Length of a minute of this road: short, so that the demo is over soon."""


def _minute() -> Column:
    return F.window("event_time", MINUTE).alias("minute")


def speeds(sightings: DataFrame) -> DataFrame:
    """Compute the average speed (a), as its sum and number, and the volume (b) per segment and
    minute. Tow trucks do not count (g).
    """
    cars = sightings.where("kind = 'car'")
    found = cars.groupBy(_minute(), "segment").agg(
        F.size(F.collect_set("car")).cast("bigint").alias("cars"),
        F.count("*").alias("sightings"),
        F.sum("speed").alias("speeds"),
    )
    return found.select(
        "segment", "cars", "sightings", "speeds", F.col("minute.end").alias("event_time")
    )


def moving_cars(sightings: DataFrame) -> DataFrame:
    """Keep the cars that move (e), once per segment and minute."""
    cars = sightings.where("kind = 'car' AND speed > 0")
    found = cars.groupBy(_minute(), "segment", "car").agg(F.count("*"))
    return found.select("car", "segment", F.col("minute.end").alias("event_time"))


def dispatches(sightings: DataFrame) -> DataFrame:
    """Send a tow truck to each car that has broken down: join the cars that stand (f) with the tow
    trucks of the same stream (g) on segment and minute (h). Of several trucks the one with the
    lowest number goes.
    """
    cars = sightings.where("kind = 'car' AND speed = 0")
    broken = cars.groupBy(_minute(), "segment", "car").agg(F.count("*"))
    trucks = sightings.where("kind = 'tow_truck'").groupBy(_minute(), "segment")
    sent = broken.join(trucks.agg(F.min("car").alias("truck")), ["minute", "segment"])
    return sent.select("car", "truck", "segment", F.col("minute.end").alias("event_time"))


def tolls(
    north_speeds: DataFrame,
    south_speeds: DataFrame,
    north_cars: DataFrame,
    south_cars: DataFrame,
    free_cars: int,
    slow: int,
) -> DataFrame:
    """Bill the cars that move: join them with the tolls (c) on the segment (d). A toll holds for
    the minute after the one that it was computed from.
    """
    both = north_speeds.unionByName(south_speeds)
    over = F.greatest(F.col("cars") - free_cars, F.lit(0))
    is_slow = F.col("speeds") < slow * F.col("sightings")
    holding = both.select(
        F.col("segment").alias("toll_of"),
        F.when(is_slow, 2 * over * over).otherwise(0).cast("bigint").alias("toll"),
        F.col("event_time").alias("holds_from"),
    )
    # The window of a moving car has its end as event time.
    holds = F.expr(
        f"segment = toll_of AND event_time > holds_from AND"
        f" event_time <= holds_from + INTERVAL {MINUTE}"
    )
    cars = north_cars.unionByName(south_cars)
    return cars.join(holding, holds).select("car", "segment", "toll", "event_time")
