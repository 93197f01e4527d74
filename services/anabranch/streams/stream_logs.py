"""Opening of the boundary logs that a pipeline's process reads: its own streams' and other owners'.

Other owners' logs need checks of signatures and names. All readers are opened here, so that none
omits these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anabranch.pipeline.topic_names import FederationTopics, TopicNames
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.federation.stream_signers import OwnedStream
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.splitting import ShardLogState
from anabranch.streams.boundary_reader import (
    BoundaryReader,
    ExpectedStream,
    Judge,
    Listener,
    StreamReader,
)
from anabranch.streams.distant_reader import DistantReader
from anabranch.streams.stream_signers import NamedKeys, PublishedSigners, check_dated

if TYPE_CHECKING:
    from anabranch.pipeline.model import Binding, Pipeline
    from anabranch.ports import EventLog


def open_stream(
    log: EventLog,
    pipeline: Pipeline,
    stream: str,
    *,
    listener: Listener | None = None,
    lock: AbstractContextManager[object] | None = None,
    new_state: Callable[[Iterable[str]], LogState] = LogState,
    needs_start: bool | None = None,
) -> BoundaryReader:
    """Open the boundary log of ``stream``, an input or the process' own. In another pipeline's log
    only records count that its owner, or a participant that may sign for it, has signed; they
    appear under the stream's name in this pipeline. ``new_state``, ``needs_start``: as of
    ``ExpectedStream``; None: a log that others may write ends no process by what it lacks.

    Raises:
        Unavailable: the log, or its owner's key log, does not exist, or there is no answer.
        ConfigurationError: its owner's keys cannot be used.
    """
    binding, source = pipeline.bindings.get(stream), pipeline.sources.get(whole_of(stream))
    expected = expected_stream(pipeline, stream)
    judge = None if binding is None else _judge(log, pipeline, binding)
    try:
        return BoundaryReader(
            log,
            pipeline.topic_names.boundaries(stream),
            pipeline.stream_writers(stream),
            listener=listener,
            lock=lock,
            expected=replace(
                expected,
                judge=judge,
                source=None if source is None else source.stream(stream),
                new_state=new_state,
                needs_start=expected.needs_start if needs_start is None else needs_start,
            ),
        )
    except BaseException:
        if judge is not None:
            judge.close()
        raise


def expected_stream(pipeline: Pipeline, stream: str) -> ExpectedStream:
    """Return the properties that the pipeline file gives ``stream``, without those that depend on
    the reader: judge, source and log state.
    """
    is_bound = stream in pipeline.bindings
    is_whole = stream in pipeline.stages and not pipeline.halves(stream)
    return ExpectedStream(
        bucket_ms=pipeline.bucket_ms,
        known_as=stream if is_bound else "",
        may_end=not (is_bound or is_whole),
        others_write=pipeline.others_write(stream),
        needs_start=not pipeline.others_write(stream),
    )


def input_state(
    pipeline: Pipeline, stream: str, opened: Mapping[str, StreamReader]
) -> Callable[[Iterable[str]], LogState]:
    """Return the function that makes the log state of ``stream`` for a process that reads it as an
    input. ``opened``: the readers of the streams that are inputs before this one, by name.
    """
    stage = pipeline.stages.get(stream)
    if stage is None or not (stage.parent or pipeline.halves(stream)):
        return LogState
    above = opened[stage.parent].log_state if stage.parent else None
    assert above is None or isinstance(above, ShardLogState), "made here"  # noqa: S101
    return partial(ShardLogState, parent=above)


def open_published(
    log: EventLog,
    topics: FederationTopics,
    stream: OwnedStream,
    writers: list[str],
    bucket_ms: int,
) -> BoundaryReader:
    """Open the boundary log of a published stream for a participant with a part in it, the owner
    included. All judge records by the published keys, so all count the same ones.

    Raises:
        Unavailable: as ``open_stream``.
        ConfigurationError: the broker does not set the times of its log.
    """
    topic = TopicNames(stream.pipeline).boundaries(stream.stream)
    check_dated(log, topic)
    judge = PublishedSigners(log, topics, stream)
    try:
        expected = ExpectedStream(bucket_ms=bucket_ms, judge=judge)
        return BoundaryReader(log, topic, writers, expected=expected)
    except BaseException:
        judge.close()
        raise


def open_dated(log: EventLog, pipeline: Pipeline, stage: str) -> BoundaryReader:
    """Open the boundary log of ``stage`` for a reader that counts results by the log's timestamps.

    Raises:
        Unavailable: as ``open_stream``.
        ConfigurationError: the broker does not set the times of its log.
    """
    check_dated(log, pipeline.topic_names.boundaries(stage))
    return open_stream(log, pipeline, stage)


def open_elsewhere(
    log: EventLog, pipeline: Pipeline, stream: str, *, lock: AbstractContextManager[object]
) -> DistantReader:
    """Open the boundary log of a stream on another cluster, for a caller that may not wait for that
    cluster. A thread of its own reads the log; ``lock`` guards the log state that it changes.
    """
    return DistantReader(
        log,
        pipeline.topic_names.boundaries(stream),
        pipeline.stream_writers(stream),
        lambda: open_stream(log, pipeline, stream, lock=lock),
    )


def signers_of(log: EventLog, pipeline: Pipeline, stream: str) -> PublishedSigners:
    """Return the judge of who may sign a published stream of this pipeline, which is in a
    federation.

    Raises:
        Unavailable: as ``PublishedSigners``.
    """
    assert pipeline.federation is not None, "looked for"  # noqa: S101 - by the caller
    owned = OwnedStream(pipeline.federation.participant, pipeline.name, stream)
    return PublishedSigners(log, FederationTopics(pipeline.federation.name), owned)


def _judge(log: EventLog, pipeline: Pipeline, binding: Binding) -> Judge | None:
    if binding.participant and pipeline.federation is not None:
        check_dated(log, pipeline.topic_names.boundaries(binding.name))
        return PublishedSigners(
            log,
            FederationTopics(pipeline.federation.name),
            OwnedStream(binding.participant, binding.pipeline, binding.stream),
        )
    return NamedKeys(binding.key_bytes()) if binding.keys else None
