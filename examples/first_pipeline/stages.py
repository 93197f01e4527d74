from pyspark.sql import functions as F


def hottest(readings):
    """Return the highest temperature of each sensor in windows of ten seconds."""
    windows = readings.groupBy(F.window("event_time", "10 seconds"), "sensor").agg(
        F.max("celsius").alias("celsius")
    )
    return windows.select(
        "sensor",
        F.date_format("window.end", "HH:mm:ss").alias("until"),
        "celsius",
        F.col("window.end").alias("event_time"),
    )
