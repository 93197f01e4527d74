"""Client library: read the results of a pipeline from Python, without Spark and without Java.

    from anabranch.client import corrected, live

    # Each result once, in order, final.
    with corrected("localhost:9092", "tolls") as rows:
        for row in rows:
            print(row.event_time, row.value["toll"])

    # The answer as it is known now, including tentative results.
    with live("localhost:9092", "tolls.live") as answer:
        for _ in answer:
            print(answer.by_key())

Both functions take the type of the values (``of=``: a dataclass, a pydantic model), the Avro schema
of a topic in Avro (``schema=``), and credentials (``security=``). Both also work with ``async
with`` and ``async for``. ``LiveView`` does the work of ``live`` for records that another consumer
reads. All errors that they raise on purpose are an ``AnabranchError``.
"""

from anabranch.client.following import BUCKETS_KEPT, Follower, LiveView, current, follow
from anabranch.client.rows import Answer, Rows, corrected, live
from anabranch.client.security import Security
from anabranch.client.values import Row
from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.edge.views import LiveRecord
from anabranch.protocol.errors import (
    AdapterError,
    AnabranchError,
    ConfigurationError,
    DataMissing,
    RemoteProtocolError,
)

__all__ = [
    "BUCKETS_KEPT",
    "AdapterError",
    "AnabranchError",
    "Answer",
    "ConfigurationError",
    "DataMissing",
    "Follower",
    "Kind",
    "LiveRecord",
    "LiveView",
    "RemoteProtocolError",
    "Row",
    "Rows",
    "Security",
    "corrected",
    "current",
    "follow",
    "live",
]
