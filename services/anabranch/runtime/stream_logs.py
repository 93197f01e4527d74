"""The boundary logs that a process of a pipeline reads: its own streams' and those of other owners.

One place knows what is different about the latter, so that nobody who reads them forgets it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from anabranch.codec.signed_records import by_one_of
from anabranch.runtime.boundary_reader import BoundaryReader, ExpectedStream, Listener

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog


def open_stream(
    log: EventLog,
    pipeline: Pipeline,
    stream: str,
    *,
    listener: Listener | None = None,
    lock: AbstractContextManager[object] | None = None,
) -> BoundaryReader:
    """A reader of the boundary log of ``stream``, an input or an own one. Of another pipeline's
    only what its owner has signed counts, under the name that the stream has here.

    Raises:
        Unavailable: there is no such log, or no answer.
    """
    binding = pipeline.bindings.get(stream)
    return BoundaryReader(
        log,
        pipeline.topic_names.boundaries(stream),
        pipeline.stream_writers(stream),
        listener=listener,
        lock=lock,
        expected=ExpectedStream(
            bucket_ms=pipeline.bucket_ms,
            known_as="" if binding is None else stream,
            verify=by_one_of(binding.key_bytes()) if binding is not None and binding.keys else None,
        ),
    )
