"""``anabranch tap``: the recent history of a stream as lines of JSON, or the result of an SQL query
over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.client.history import Span, tables_of
from anabranch.codec.json_records import JsonEncoder
from anabranch.operating.known_topic import check_topic
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog


def open_tap(
    log: EventLog, pipeline: Pipeline, stream: str, from_ms: int | None, to_ms: int | None
) -> tuple[Span, Iterator[pa.Table]]:
    """Return the span of event times that can be read of ``stream``, and its rows between.

    Raises:
        ConfigurationError: the pipeline has no such stream, or has not run on this broker.
        Unavailable, DataMissing: as ``client.history.history``.
    """
    if stream not in pipeline.bindings:
        check_topic(log, pipeline.topic_names.boundaries(pipeline.streams()[0]), pipeline.name)
    return tables_of(log, pipeline, stream, from_ms, to_ms)


def lines_of(tables: Iterator[pa.Table]) -> Iterator[str]:
    """Yield each row as an object in JSON, as outputs in JSON have it."""
    for table in tables:
        for line in JsonEncoder(table.schema).encode(table):
            yield line.decode()


def queried(stream: str, rows: pa.Table, text: str) -> pa.Table:
    """Return the result of an SQL query (of polars' dialect) over ``rows``, the table ``stream``.

    Raises:
        ConfigurationError: the query is none that polars can run; or it is not a query.
    """
    import polars as pl
    from polars.exceptions import PolarsError

    if not text.lstrip(" (\n\t").lower().startswith(("select", "with")):
        raise ConfigurationError(f"--sql {text}: only queries are possible, of the table {stream}")
    try:
        with pl.SQLContext({stream: pl.from_arrow(rows)}, eager=True) as context:
            return context.execute(text).to_arrow()
    except PolarsError as error:
        raise ConfigurationError(f"--sql {text}: {error}") from error
