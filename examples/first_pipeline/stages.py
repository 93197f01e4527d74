from pyspark.sql import functions as F


def hottest(readings):
    windows = readings.groupBy(F.window("event_time", "10 seconds"), "sensor").agg(
        F.max("celsius").alias("celsius")
    )
    return windows.select("sensor", "celsius", F.col("window.end").alias("event_time"))
