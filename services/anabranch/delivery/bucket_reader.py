"""Whole buckets of an output's stage, in canonical order: stable ones from whoever still has
them, tentative ones from who made them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from structlog.typing import FilteringBoundLogger

from anabranch.delivery.rendering import Ordered, in_order
from anabranch.pipeline.model import Output, Pipeline
from anabranch.ports import Clock, EventLog
from anabranch.protocol.errors import DataMissing
from anabranch.protocol.log.records import Part
from anabranch.runtime.block_reader import BlockReader
from anabranch.runtime.boundary_reader import BoundaryReader
from anabranch.runtime.gone_blocks import last_gone

Stable = list[tuple[int, str, tuple[Part, ...]]]
"""Non-empty buckets: (bucket, writer to read it from, its parts)."""


class BucketReader:
    """Reads what ``following`` knows of. Not thread-safe.

    There is one for each half of delivery, and in it one reader for stable and one for tentative
    blocks: they stand at different places of the same topics, and what one has read too far is of
    no use to the other.
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
        self._width_ms = pipeline.bucket_ms
        self._output = output
        self._following = following
        self._logger = logger

        def reader() -> BlockReader:
            return BlockReader(log, self._topic_of, clock)

        self._blocks, self._branches = reader(), reader()

    def gone_upto(self) -> int:
        """The last stable bucket of which nobody has all blocks, since what other readers had
        passed is deleted; 0: there is none.

        What is new, an output or its live topic, begins after it.
        """
        reader = self._log.reader(committed=False, headers=False)
        try:
            return last_gone(reader, self._topic_of, self._following.log_state, by_any=True)
        finally:
            reader.close()

    def stable(self, wanted: Stable) -> list[Ordered]:
        """Stable buckets, none of them empty; where blocks of one writer are gone, from another
        that made the same of the bucket.

        Raises:
            DataMissing: nobody has them, or only one that made other rows of a bucket: what counts
                is the boundary log's.
        """
        try:
            return in_order(self._blocks.read_buckets(wanted), self._width_ms)
        except DataMissing as error:
            self._logger.warning("blocks_missing", output=self._output.name, error=str(error))
        log_state, found = self._following.log_state, []
        for bucket, writer, parts in wanted:
            sources = [(writer, parts), *log_state.alike(bucket, writer, parts)]
            found += self._from_any(bucket, sources)
        return in_order(found, self._width_ms)

    def tentative(
        self, replica: str, wanted: Sequence[tuple[int, tuple[Part, ...]]]
    ) -> list[Ordered]:
        """Tentative buckets, (bucket, parts), none of them empty, which only ``replica`` has.

        Raises:
            DataMissing, RemoteProtocolError: it has them no more, or not as its records say.
        """
        return in_order(
            self._branches.read_buckets([(bucket, replica, parts) for bucket, parts in wanted]),
            self._width_ms,
        )

    def rest(self) -> None:
        """No tentative buckets are wanted for now: give back what reads them."""
        self._branches.close()

    def close(self) -> None:
        """Idempotent."""
        self._blocks.close()
        self._branches.close()

    def _from_any(
        self, bucket: int, sources: list[tuple[str, tuple[Part, ...]]]
    ) -> list[tuple[int, pa.Table]]:
        for writer, parts in sources[:-1]:
            try:
                return self._blocks.read_buckets([(bucket, writer, parts)])
            except DataMissing:
                continue  # the last source's error is raised
        writer, parts = sources[-1]
        return self._blocks.read_buckets([(bucket, writer, parts)])
