"""Wait of a restarted node before it starts Spark: it leaves the processors to a standby on another
node that is becoming the primary of a stage (``protocol.stage.standby``, SB9).

It writes nothing, so a crash changes nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from anabranch.protocol.stage.standby import must_yield
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.stream_logs import expected_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog

_POLL_MS: Final = 100
"""Timeout for polling each log, in ms."""


def yield_to_primary(
    log: EventLog,
    clock: Clock,
    pipeline: Pipeline,
    node: str,
    stages: Sequence[str],
    stopping: Callable[[], bool],
) -> int:
    """Wait while ``node`` should leave the processors to a standby of one of the passive
    ``stages``. Return how long that was, in ms.

    Raises:
        AnabranchError: a log cannot be read.
    """
    begun_ms = clock.monotonic_ms()
    with ExitStack() as opened:
        readers = [
            opened.enter_context(
                closing(
                    BoundaryReader(
                        log,
                        pipeline.topic_names.boundaries(stage),
                        pipeline.stream_writers(stage),
                        expected=expected_stream(pipeline, stage),
                    )
                )
            )
            for stage in stages
        ]
        for reader in readers:
            reader.read_to_end()

        def yields_to(reader: BoundaryReader) -> bool:
            """Return whether the node waits for a new primary of the stage of ``reader``."""
            (writer,) = reader.log_state.writers
            last = reader.log_state.last(writer)
            return must_yield(
                node,
                reader.log_state.node(writer),
                has_written=last is not None and last.epoch == reader.log_state.epoch(writer),
                waited_ms=clock.monotonic_ms() - begun_ms,
            )

        while not stopping() and any(yields_to(reader) for reader in readers):
            for reader in readers:
                reader.poll(_POLL_MS)
    return clock.monotonic_ms() - begun_ms
