"""Reader of whole buckets of an output's stage, in canonical order: stable ones from any replica
that still has their blocks, tentative ones from the replica that made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from structlog.typing import FilteringBoundLogger

from anabranch.delivery.rendering import Ordered, in_order
from anabranch.pipeline.model import Output, Pipeline
from anabranch.ports import Clock, EventLog
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.log.records import Part
from anabranch.streams.block_reader import BlockReader, read_from_any
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.gone_blocks import last_gone_everywhere

Stable = list[tuple[int, str, tuple[Part, ...]]]
"""Non-empty buckets: (bucket, writer to read it from, its parts)."""


class BucketReader:
    """Reader of the buckets that the boundary log of ``following`` names. Not thread-safe.

    The corrected and the live half of delivery each have one. It holds a block reader for stable
    and another for tentative blocks: they read at different positions of the same topics, and
    neither can use what the other has buffered.
    """

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        pipeline: Pipeline,
        output: Output,
        following: BoundaryReader,
        logger: FilteringBoundLogger,
    ) -> None:
        names = pipeline.topic_names
        self._log, self._topic_of = log, partial(names.blocks, output.stage)
        self._output = output
        self._following = following
        self._logger = logger

        def reader() -> BlockReader:
            return BlockReader(
                log, self._topic_of, clock, width_ms=pipeline.bucket_ms, with_notices=True
            )

        self._blocks, self._branches = reader(), reader()

    def gone_upto(self) -> int:
        """Return the last stable bucket of which no replica has all blocks any more, or 0.

        Blocks are deleted once all known readers have passed them, so a new output or live topic
        begins after this bucket.
        """
        return last_gone_everywhere(self._log, self._topic_of, self._following.log_state)

    def stable(self, wanted: Stable) -> list[Ordered]:
        """Return the rows of stable buckets, none of them empty. Where blocks of the named writer
        are gone, reads them from a replica whose result for the bucket is equal.

        Raises:
            DataMissing: no replica has them, or only one with other rows than the boundary log
                counts, or with rows of another bucket.
        """
        try:
            found = self._blocks.read_buckets(wanted)
        except DataMissing as error:
            self._logger.warning("blocks_missing", output=self._output.name, error=str(error))
            found = read_from_any(self._blocks, self._following.log_state, wanted)
        return in_order(found)

    def tentative(
        self, replica: str, wanted: Sequence[tuple[int, tuple[Part, ...]]]
    ) -> list[Ordered]:
        """Return the rows of ``replica``'s tentative buckets, (bucket, parts), none of them empty.

        Raises:
            DataMissing: the blocks are gone, or differ from their boundary records.
        """
        return in_order(
            self._branches.read_buckets([(bucket, replica, parts) for bucket, parts in wanted])
        )

    def close_tentative(self) -> None:
        """Close the reader of tentative blocks until it is needed again."""
        self._branches.close()

    def close(self) -> None:
        """Close both block readers. Idempotent."""
        self._blocks.close()
        self._branches.close()
