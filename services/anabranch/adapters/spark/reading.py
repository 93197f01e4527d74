"""Reader of a task's input: the rows of its share of a plan.

Runs in Spark's task workers, which are reused from batch to batch, so this module keeps the Kafka
clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.spark.machines import machine_named
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.blocks import (
    EVENT_TIME,
    by_columns,
    canonical_sort,
    row_hashes,
    schema_from_text,
)
from anabranch.codec.kept_rows import kept_rows, most_important
from anabranch.codec.shard_rows import shard_mask
from anabranch.pipeline.row_expressions import importance_of
from anabranch.pipeline.transforms import import_transform
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.limits import MIB
from anabranch.protocol.stage.intervals import Interval
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.streams.block_reader import BlockReader

if TYPE_CHECKING:
    from anabranch.adapters.spark.source_options import SourceOptions
    from anabranch.protocol.log.records import Part

QUERIES_MAX: Final = 2
"""Maximum number of queries of a replica at a time: the stable one and a branch, or one that
recomputes a range.
"""
_ARROW_ROWS: Final = 65_536
_ARROW_BYTES: Final = 8 * MIB
"""Size, in bytes or in rows, of a batch that is passed to Java, which holds it whole."""
_EVENT_TIME_TYPE: Final = pa.timestamp("us", tz="UTC")


def arrow_schema(options: SourceOptions) -> pa.Schema:
    """Return the columns of the batches that ``rows`` yields: those of the stream, event time as a
    timestamp.
    """
    fields = [
        field.with_nullable(nullable=True)
        for field in schema_from_text(options.schema)
        if field.name != EVENT_TIME
    ]
    return pa.schema([*fields, pa.field(EVENT_TIME, _EVENT_TIME_TYPE)])


def rows(
    options: SourceOptions,
    taken: Sequence[tuple[str, str, tuple[Part, ...]]],
    kept: int = KEPT_ALL,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the parts in ``taken``, (stream, writer, parts) each.

    Args:
        options: Settings of the reader.
        taken: Parts to read.
        kept: Per mille of their rows to keep.

    Raises:
        DataMissing: a block is missing from the log, or differs from what its part says.
        Unavailable: the broker does not answer, or denies access.
        ConfigurationError: a file that the settings name is not on this machine.
        StageFunctionError: a column that the query uses is missing.
    """
    schema = arrow_schema(options)
    is_cut = kept < KEPT_ALL and options.kept_by is not None
    tables = []
    rows_read = 0
    with machine_named():
        for stream, replica, parts in taken:
            read = _reader(options, stream).read_parts(replica, parts)
            rows_read += sum(table.num_rows for table in read)
            # Before any other step: what is left out must cost as little as possible.
            if is_cut and not options.keeps_by_importance:
                key = options.kept_by or ()
                read = [kept_rows(table, key, options.kept_salt, kept) for table in read]
            elif is_cut:
                read = [_with_optional(table, options) for table in read]
            tables += [table for table in read if table.num_rows]
    if tables:
        alike = [_of_shard(table, schema, options) for table in by_columns(tables)]
        if is_cut and options.keeps_by_importance:
            alike = [_most_important(table, options, kept) for table in alike]
        found = [
            _with_columns(canonical_sort(table) if options.ordered else table, schema, options)
            for table in alike
        ]
        table = found[0] if len(found) == 1 else pa.concat_tables(found)
        if options.ordered and len(found) > 1:  # stable: see ``canonical_sort``
            table = table.take(pc.sort_indices(table, [(EVENT_TIME, "ascending")]))
        size_bytes = sum(part.size_bytes for _, _, parts in taken for part in parts)
        each = min(_ARROW_ROWS, max(1, _ARROW_BYTES * rows_read // max(1, size_bytes)))
        for first in range(0, table.num_rows, each):  # a copy of the whole would double its memory
            yield from table.slice(first, each).combine_chunks().to_batches()


def _of_shard(table: pa.Table, schema: pa.Schema, options: SourceOptions) -> pa.Table:
    """Return the rows of ``table`` that the stage takes (KP1). A filter in the query would do the
    same, but Spark spends more on a row that it drops than its reader has spent on it.

    Raises:
        StageFunctionError: as ``_with_columns``.
    """
    if not options.share_by:
        return table
    key = [_column(table, schema.field(name), options) for name in options.share_by]
    mask = shard_mask(pa.table(key, list(options.share_by)), Interval(options.share_bits))
    return table.filter(pa.array(mask))


def _most_important(table: pa.Table, options: SourceOptions, kept: int) -> pa.Table:
    """Return the rows of ``table`` that matter most, by the stage's own function or expression,
    which gets all rows of the batch in canonical order: the same whatever blocks they were in.

    Raises:
        StageFunctionError: the function raised, or did not return one number for each row; or so
            did the expression.
    """
    table = canonical_sort(table)
    found = _importance(table, options)
    buckets = -(-table.column(EVENT_TIME).to_numpy() // options.width_ms)
    importance = np.where(np.isnan(found), -inf, found)
    mask = most_important(buckets, importance, row_hashes(table), options.kept_salt, kept)
    return table.filter(pa.array(mask))


def _importance(table: pa.Table, options: SourceOptions) -> np.ndarray:
    """Return how much each row of ``table`` matters; what is null least.

    Raises:
        StageFunctionError: as ``_most_important``.
    """
    if options.kept_expression:
        return np.asarray(importance_of(table, options.kept_expression).fill_null(-inf))
    function = import_transform(options.kept_function, Path(options.pipeline))
    try:
        found = function(rows=table)
        found = found if isinstance(found, pa.Array | pa.ChunkedArray) else pa.array(found)
        importance = np.asarray(found.cast(pa.float64()).fill_null(-inf))
    except Exception as error:  # the user's code may raise anything
        message = f"{options.kept_function}: raised {type(error).__name__}: {error}"
        raise StageFunctionError(message) from error
    if len(importance) != table.num_rows:
        raise StageFunctionError(
            f"{options.kept_function}: gave {len(importance)} numbers for {table.num_rows} rows; it"
            " must say of each row how much it matters"
        )
    return importance


def _with_optional(table: pa.Table, options: SourceOptions) -> pa.Table:
    """Return ``table`` with the optional columns of the stream that it does not have, as null, in
    the order of the stream: rows from before and after a column was added are one table then.
    """
    stream, own = schema_from_text(options.kept_schema), table.column_names
    added = [f for f in stream if f.name in options.optional and f.name not in own]
    if not added:
        return table
    for field in added:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    names = [name for name in stream.names if name in table.column_names]
    return table.select([*names, *(name for name in own if name not in names)])


def _with_columns(table: pa.Table, schema: pa.Schema, options: SourceOptions) -> pa.Table:
    """Return ``table`` with the columns that the query was built with. Columns that it does not
    use are null, in the table or not, and so are missing optional ones.

    Raises:
        StageFunctionError: a column that the query uses is missing or has another type: the stage
            that writes it has changed in between.
    """
    columns = [
        _column(table, field, options)
        if field.name in options.columns
        else pa.nulls(table.num_rows, field.type)
        for field in list(schema)[:-1]
    ]
    event_time = table.column(EVENT_TIME).cast(pa.timestamp("ms", tz="UTC")).cast(_EVENT_TIME_TYPE)
    return pa.table([*columns, event_time], schema=schema)


def _column(table: pa.Table, field: pa.Field, options: SourceOptions) -> pa.ChunkedArray:
    """Return the column ``field`` of ``table``, in the type that the query was built with. Raises
    as ``_with_columns``.
    """
    if field.name in options.optional and field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    try:
        return _one_zero(table.column(field.name).cast(field.type))
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        bucket = -(-pc.min(table.column(EVENT_TIME)).as_py() // options.width_ms)
        there = ", ".join(f"{each.name} {each.type}" for each in table.schema)
        raise StageFunctionError(
            f"bucket {bucket} of {options.stream} has no column {field.name} of type"
            f" {field.type}, which is used here; it has {there}: the columns of"
            f" {options.stream} have changed since, or were others before"
        ) from error


def _one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ``column`` with 0.0 for -0.0, which is equal to it: of equal numbers ``min`` and
    ``max`` keep whichever came first.
    """
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))


_readers: dict[tuple[str, str], dict[str, BlockReader]] = {}
"""Readers by stream, and by query in the order of their last use."""


def _reader(options: SourceOptions, stream: str) -> BlockReader:
    """Return the reader of a stream for a query. A branch and its successor have their own, since
    they read at different positions, and what one has read ahead is of no use to the other.

    The reader of a query is closed, with its consumers, once QUERIES_MAX other queries have read
    after it.
    """
    kafka, cluster = options.kafka, options.cluster
    blocks = options.blocks[stream]
    query = options.query
    of_stream = _readers.setdefault((kafka, blocks), {})
    reader = of_stream.pop(query, None)
    if reader is None:
        reader = BlockReader(
            _log(kafka, cluster),
            lambda replica: f"{blocks}.{replica}",
            SystemClock(),
            width_ms=None if options.is_own else options.width_ms,
            is_elsewhere=bool(cluster),
        )
    of_stream[query] = reader
    while len(of_stream) > QUERIES_MAX:
        of_stream.pop(next(iter(of_stream))).close()
    return reader


@lru_cache(maxsize=16)
def _log(kafka: str, cluster: str) -> KafkaEventLog:
    """Return the client of a cluster."""
    return KafkaEventLog(kafka, security=security_from_environment(cluster))
