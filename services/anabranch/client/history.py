"""Recent history of any stream of a pipeline, as an Arrow table: a source as it was ingested, what
a stage made, not only outputs.

    from anabranch.client.history import history

    rows = history("pipeline.yaml", "speeds", kafka="localhost:9092").to_pandas()

This is Aurora's connection point, read by an ad-hoc query: only what is stable, read-only, and as
far back as blocks are kept (``history`` in the pipeline file). Unlike the rest of the client it
needs the packages of ``anabranch[run]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.client.security import Security
from anabranch.codec.blocks import EVENT_TIME
from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import MIB
from anabranch.protocol.log.buckets import bound_ms, bucket_of
from anabranch.streams.history import History

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog

TABLE_BYTES_MAX: Final = 1_024 * MIB
"""Maximum size of the table that ``history`` returns, in bytes: it is in memory as a whole."""

_TIME: Final = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class Span:
    """Event times, in ms since 1970, that a read covers: after ``after_ms``, up to ``upto_ms``."""

    after_ms: int
    upto_ms: int


def history(
    pipeline: str | Path,
    stream: str,
    *,
    kafka: str,
    security: Security | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> pa.Table:
    """Return the stable rows of ``stream`` that still exist, in the order of their buckets, with
    their ``event_time``.

    Args:
        pipeline: Pipeline file.
        stream: Name of a source, stage or binding.
        kafka: Address of the broker, HOST:PORT.
        security: Encryption and credentials; None: those of the environment.
        from_ms: Least event time, in ms since 1970; None: as far back as rows exist.
        to_ms: Largest event time, in ms; None: up to the last stable bucket.

    Raises:
        ConfigurationError: there is no such stream, the rows take more than TABLE_BYTES_MAX, or a
            version of the stage has given a column another type within this time.
        Unavailable: the broker does not answer, or the pipeline has not run on it.
        DataMissing: blocks were deleted while they were read.
    """
    options = None if security is None else security.options()
    log = KafkaEventLog(kafka, security=options)
    return joined(stream, tables_of(log, load(Path(pipeline)), stream, from_ms, to_ms)[1])


def joined(stream: str, tables: Iterator[pa.Table]) -> pa.Table:
    """Return ``tables`` of ``stream`` as one; a column that one of them lacks is null there.

    Raises:
        ConfigurationError: the rows take more than TABLE_BYTES_MAX, or a column has two types in
            them.
    """
    kept, size = list[pa.Table](), 0
    for table in tables:
        size += table.nbytes
        if size > TABLE_BYTES_MAX:
            raise ConfigurationError(
                f"the rows of {stream} take more than {TABLE_BYTES_MAX // MIB} MiB: name a shorter"
                " time"
            )
        kept.append(table)
    try:
        return pa.concat_tables(kept, promote_options="default") if kept else pa.table({})
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise ConfigurationError(
            f"the columns of {stream} have changed meanwhile ({error}): name a time that begins"
            " after that, or ends before it"
        ) from error


def tables_of(
    log: EventLog, pipeline: Pipeline, stream: str, from_ms: int | None, to_ms: int | None
) -> tuple[Span, Iterator[pa.Table]]:
    """Return the span of event times that can be read of ``stream``, and an iterator over its rows
    from ``from_ms`` to ``to_ms`` within that span. Arguments and errors are those of ``history``.
    """
    read = History(log, pipeline, stream, SystemClock())
    width_ms = pipeline.bucket_ms
    there = Span(bound_ms(read.first - 1, width_ms), bound_ms(read.last, width_ms))

    def tables() -> Iterator[pa.Table]:
        first = read.first if from_ms is None else bucket_of(from_ms, width_ms)
        last = read.last if to_ms is None else bucket_of(to_ms, width_ms)
        with read:
            for _, table in read.rows(first, last):
                if (rows := _between(table, from_ms, to_ms)).num_rows:
                    yield rows

    return there, tables()


def _between(table: pa.Table, from_ms: int | None, to_ms: int | None) -> pa.Table:
    """Return the rows of ``table`` whose event time lies between, both included, with that time as
    a timestamp.
    """
    if from_ms is not None:
        table = table.filter(pc.greater_equal(table[EVENT_TIME], from_ms))
    if to_ms is not None:
        table = table.filter(pc.less_equal(table[EVENT_TIME], to_ms))
    index = table.schema.get_field_index(EVENT_TIME)
    return table.set_column(index, pa.field(EVENT_TIME, _TIME), table[EVENT_TIME].cast(_TIME))
