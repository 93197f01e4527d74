"""Comparison of floating-point numbers between two replicas, for a sample of buckets. Digests leave
out the values of floats, since a sum of floats depends on the order of addition.

Each sample is compared on a thread of its own, because reading blocks may take long. One thread
runs at a time; a sample that is due meanwhile is skipped.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter

from anabranch.codec.blocks import by_columns, schema_from_text
from anabranch.codec.float_comparison import float_columns, float_difference
from anabranch.protocol.control.consistency import FLOAT_MISMATCH, Agreed, StreamAudit
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.errors import DataMissing, RemoteProtocolError, Unavailable
from anabranch.streams.block_reader import BlockReader

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.ports import Thread
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.boundary_log import LogState

FLOAT_SAMPLE_EVERY_MS: Final = 10_000
"""Minimum interval between two comparisons of a stream, in ms. Replicas whose plan makes floats
differ do so in every bucket, so a sample finds it.
"""

_LABELS: Final = ("pipeline", "stream")


class FloatAudit:
    """Sampler of all streams of a pipeline, and owner of the comparing thread."""

    def __init__(self, context: ServiceContext) -> None:
        self._context, self._names = context, context.pipeline.topic_names
        self._next_ms: dict[str, int] = {}
        self._reported: set[tuple[str, str, str]] = set()
        """(stream, replica, replica) that were reported to differ. Each is reported once."""
        self._readers: dict[str, BlockReader] = {}
        """Reader of each stream. Only the thread uses them while one runs."""
        self._finding: Alarm | None = None
        """Result of the last thread, until the loop takes it."""
        self._thread: Thread | None = None
        self._error: BaseException | None = None
        self._is_closing = False
        text = "Buckets whose floating-point numbers were compared between two replicas"
        self._compared = Counter(
            "anabranch_float_buckets_compared", text, _LABELS, registry=context.registry
        )

    def round(self, stream: str, log_state: LogState, audit: StreamAudit) -> Alarm | None:
        """Begin to compare the newest bucket on which two replicas agree, if a comparison is due.
        Return what an earlier comparison has found, or None.

        Raises:
            BaseException: the error that ended a comparison.
        """
        if self._error is not None:
            raise self._error
        now_ms, agreed = self._context.clock.monotonic_ms(), audit.agreed
        if agreed is not None and now_ms >= self._next_ms.get(stream, 0):
            self._next_ms[stream], audit.agreed = now_ms + FLOAT_SAMPLE_EVERY_MS, None
            if _has_floats(log_state.schema()):
                self._begin(stream, agreed)
        if self._is_busy():
            return None
        finding, self._finding = self._finding, None
        return finding

    def close(self) -> None:
        """Close the readers. Idempotent. Does not wait for a running comparison, whose thread
        closes them at its end.
        """
        self._is_closing = True
        if not self._is_busy():
            self._close_readers()

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self, stream: str, agreed: Agreed) -> None:
        pair = (stream, agreed.first[0], agreed.second[0])
        # A finding that the loop has not taken yet would be lost.
        if pair in self._reported or self._is_busy() or self._finding is not None:
            return
        self._thread = self._context.threads.begin(
            "compare floats", partial(self._run, stream, agreed)
        )

    def _run(self, stream: str, agreed: Agreed) -> None:
        try:
            if stream not in self._readers:
                self._readers[stream] = BlockReader(
                    self._context.log,
                    partial(self._names.blocks, stream),
                    self._context.clock,
                    width_ms=self._context.pipeline.bucket_ms,
                )
            self._compare(stream, agreed, self._readers[stream])
        except BaseException as error:  # noqa: BLE001 - raised by ``round``, in the manager's loop
            self._error = error
        finally:
            if self._is_closing:
                self._close_readers()

    def _close_readers(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _compare(self, stream: str, agreed: Agreed, reader: BlockReader) -> None:
        (first, parts), (second, other_parts) = agreed.first, agreed.second
        try:
            # The version before may have given rows of the bucket, which have other columns.
            one = by_columns(reader.read_parts(first, parts))
            two = by_columns(reader.read_parts(second, other_parts))
        except (DataMissing, Unavailable):
            return  # trimmed meanwhile, or the broker is away: the next sample follows soon
        if not one or [_shape(table) for table in one] != [_shape(table) for table in two]:
            return
        self._compared.labels(self._context.pipeline.name, stream).inc()
        found = (float_difference(mine, other) for mine, other in zip(one, two, strict=True))
        if difference := next(filter(None, found), ""):
            self._reported.add((stream, first, second))
            text = (
                f"replicas {first} and {second} of {stream} differ in bucket {agreed.bucket},"
                f" {difference}"
            )
            self._finding = Alarm(
                FLOAT_MISMATCH, stream, agreed.bucket, text, self._context.clock.now_ms()
            )


def _shape(table: pa.Table) -> tuple[int, list[str]]:
    """Return the number of rows and the names of the columns."""
    return table.num_rows, table.column_names


def _has_floats(schema: str) -> bool:
    try:
        return bool(schema) and bool(float_columns(schema_from_text(schema)))
    except RemoteProtocolError:
        return False
