"""What a node does before Spark when it is started again: it leaves the processors to a standby
elsewhere that becomes the primary of a stage (``protocol.stage.standby``, SB9).

Nothing is written: a crash changes nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from anabranch.protocol.stage.standby import makes_way
from anabranch.runtime.boundary_reader import BoundaryReader, ExpectedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog

_POLL_MS: Final = 100


def stages_elsewhere(pipeline: Pipeline, stages: Sequence[str]) -> list[str]:
    """Of the ``stages`` of a node those for which somebody stands by elsewhere; none, where
    another one has nobody else who runs it: that one waits for the node.
    """
    found = [pipeline.stages[stage] for stage in stages]
    if any(len(stage.process_ids()) == 1 for stage in found):
        return []
    return [stage.name for stage in found if stage.ha == "passive"]


def make_way(
    log: EventLog,
    clock: Clock,
    pipeline: Pipeline,
    node: str,
    stages: Sequence[str],
    stopping: Callable[[], bool],
) -> int:
    """Wait as long as ``node`` leaves the processors to who becomes the primary of one of the
    passive ``stages``; how long that was, in ms.

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
                        expected=ExpectedStream(bucket_ms=pipeline.bucket_ms),
                    )
                )
            )
            for stage in stages
        ]
        for reader in readers:
            reader.read_to_end()

        def waits(reader: BoundaryReader) -> bool:
            (writer,) = reader.log_state.writers
            last = reader.log_state.last(writer)
            return makes_way(
                node,
                reader.log_state.node(writer),
                has_written=last is not None and last.epoch == reader.log_state.epoch(writer),
                waited_ms=clock.monotonic_ms() - begun_ms,
            )

        while not stopping() and any(waits(reader) for reader in readers):
            for reader in readers:
                reader.poll(_POLL_MS)
    return clock.monotonic_ms() - begun_ms
