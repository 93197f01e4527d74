"""Comparison of floating-point numbers between two replicas, for a sample of buckets. Digests leave
out the values of floats, since a sum of floats depends on the order of addition.

The comparison runs on a thread of its own, because reading blocks may take long. There is one
thread, started with the first stream that has such columns. The queues between it and the manager's
loop hold one sample and one finding each; a sample that does not fit is skipped.
"""

from __future__ import annotations

import queue
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter

from anabranch.codec.blocks import schema_from_text
from anabranch.codec.float_comparison import float_columns, float_difference
from anabranch.protocol.control.consistency import FLOAT_MISMATCH, Agreed, StreamAudit
from anabranch.protocol.control.records import Alarm
from anabranch.protocol.errors import DataMissing, RemoteProtocolError, Unavailable
from anabranch.runtime.block_reader import BlockReader

if TYPE_CHECKING:
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.runtime.service import ServiceContext

FLOAT_SAMPLE_EVERY_MS: Final = 10_000
"""Minimum interval between two comparisons of a stream, in ms. Replicas whose plan makes floats
differ do so in every bucket, so a sample finds it.
"""

_LABELS: Final = ("pipeline", "stream")
_WAIT_S: Final = 0.5
"""Timeout of waiting for a sample, in s, after which the thread checks whether it must end."""


class FloatAudit:
    """Sampler of all streams of a pipeline, and owner of the comparing thread."""

    def __init__(self, context: ServiceContext) -> None:
        self._context, self._names = context, context.pipeline.topic_names
        self._next_ms: dict[str, int] = {}
        self._reported: set[tuple[str, str, str]] = set()
        """(stream, replica, replica) that were reported to differ. Each is reported once."""
        self._samples: queue.Queue[tuple[str, Agreed]] = queue.Queue(1)
        self._findings: queue.Queue[Alarm] = queue.Queue(1)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        text = "Buckets whose floating-point numbers were compared between two replicas"
        self._compared = Counter(
            "anabranch_float_buckets_compared", text, _LABELS, registry=context.registry
        )

    def round(self, stream: str, log_state: LogState, audit: StreamAudit) -> Alarm | None:
        """Offer the thread the newest bucket on which two replicas agree, if a comparison is due.
        Return what the thread has found meanwhile, or None.

        Raises:
            BaseException: the error that ended the thread.
        """
        if self._error is not None:
            raise self._error
        now_ms, agreed = self._context.clock.monotonic_ms(), audit.agreed
        if agreed is not None and now_ms >= self._next_ms.get(stream, 0):
            self._next_ms[stream], audit.agreed = now_ms + FLOAT_SAMPLE_EVERY_MS, None
            if _has_floats(log_state.schema()):
                self._offer(stream, agreed)
        try:
            return self._findings.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Tell the thread to end. Idempotent. Does not wait for a running comparison."""
        self._closing.set()

    def _offer(self, stream: str, agreed: Agreed) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="compare floats", daemon=True)
            self._thread.start()
        if (
            stream,
            agreed.first[0],
            agreed.second[0],
        ) not in self._reported and not self._samples.full():
            self._samples.put_nowait((stream, agreed))

    def _run(self) -> None:
        readers: dict[str, BlockReader] = {}
        try:
            while not self._closing.is_set():
                try:
                    stream, agreed = self._samples.get(timeout=_WAIT_S)
                except queue.Empty:
                    continue
                if stream not in readers:
                    readers[stream] = BlockReader(
                        self._context.log, partial(self._names.blocks, stream), self._context.clock
                    )
                self._compare(stream, agreed, readers[stream])
        except BaseException as error:  # noqa: BLE001 - handed to the manager's loop
            self._error = error
        finally:
            for reader in readers.values():
                reader.close()

    def _compare(self, stream: str, agreed: Agreed, reader: BlockReader) -> None:
        (first, parts), (second, other_parts) = agreed.first, agreed.second
        try:
            one, two = reader.read(first, parts), reader.read(second, other_parts)
        except (DataMissing, Unavailable):
            return  # trimmed meanwhile, or the broker is away: the next sample follows soon
        if one is None or two is None:
            return
        self._compared.labels(self._context.pipeline.name, stream).inc()
        difference = float_difference(one, two)
        if difference:
            self._reported.add((stream, first, second))
            text = (
                f"replicas {first} and {second} of {stream} differ in bucket {agreed.bucket},"
                f" {difference}"
            )
            self._findings.put(
                Alarm(FLOAT_MISMATCH, stream, agreed.bucket, text, self._context.clock.now_ms())
            )


def _has_floats(schema: str) -> bool:
    try:
        return bool(schema) and bool(float_columns(schema_from_text(schema)))
    except RemoteProtocolError:
        return False
