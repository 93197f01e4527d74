"""``anabranch give-up``: close buckets for which a source will never deliver its input.

The command appends a boundary record in place of the source's ingestion, which it fences
(``protocol.log.given_up``). Then everything downstream continues without the input, and marks the
results that lack it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from anabranch.operating.known_topic import check_topic
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.times import format_time, parse_time_ms
from anabranch.ports import Clock, Entropy, EventLog, LogReader
from anabranch.protocol.edge.handover import EndedStream, ended, goes_on, read_to
from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.edge.missing_input import (
    InputState,
    MissingInput,
    given_up_missing,
    missing,
)
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import bound_ms, bucket_of
from anabranch.protocol.log.given_up import Times, to_give_up
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, GivenUp, InputPosition
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.source_input import input_state

_WRITER: Final = "0"
"""Replica name of a source's only writer, its ingestion."""


@dataclass(frozen=True, slots=True)
class GiveUpRequest:
    """Content of the record by which an operator gives up input."""

    given_up: GivenUp
    """Buckets that lack input from now on."""
    closed: int
    """Last bucket that the record closes."""
    positions: tuple[InputPosition, ...]
    """Offsets from which ingestion reads on; empty: this record moves none."""


class GiveUp:
    """Command that gives up the buckets of one source, or of one of its shards.

    Nothing is written before ``do``; after a crash within it the command may be given again.
    """

    def __init__(
        self,
        log: EventLog,
        pipeline: Pipeline,
        source: str,
        times: Times,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """Prepare the command without contacting the broker.

        Raises:
            ConfigurationError: the pipeline has no source ``source``, or the source has shards, of
                which each is given up by itself.
        """
        streams = pipeline.source_processes()
        if source not in streams:
            raise ConfigurationError(
                f"the pipeline {pipeline.name} has no source {source}, or it has shards; give up"
                f" one of {', '.join(streams)}"
            )
        self._log = log
        self._pipeline = pipeline
        self._source = source
        self._times = times
        self._clock = clock
        self._entropy = entropy
        self._topic = pipeline.topic_names.boundaries(source)

    def plan(self) -> GivenUp:
        """Return the buckets that ``do`` would give up now, without writing anything.

        Raises:
            ConfigurationError: there are no such buckets, or more than the caller asked for; or the
                source has not run on this broker.
            Unavailable: the broker does not answer.
        """
        check_topic(self._log, self._topic, self._pipeline.name)
        return self._buckets(self._log_state())

    def do(self) -> GivenUp:
        """Give up the buckets, and return them: fewer than planned if the source has closed some
        since.

        Fences the running ingestion: it ends at its next write, and its supervisor restarts it,
        which continues after the operator's boundary.

        Raises:
            ConfigurationError: there is nothing to give up any more.
            Fenced, DataMissing: meanwhile a process of the source started, or its log was trimmed;
                give the command again.
            Unavailable: the broker does not answer.
        """
        # Checked before anything is written: a command in vain must not fence the ingestion.
        self._buckets(self._log_state())
        return self.append(self._decide).given_up

    def _decide(self, log_state: LogState) -> GiveUpRequest:
        """Return the decision that closes the buckets, at the positions that ingestion recorded."""
        found = self._buckets(log_state)
        return GiveUpRequest(found, found.last, read_to(log_state.last(_WRITER)))

    def append(self, decide: Callable[[LogState], GiveUpRequest]) -> GiveUpRequest:
        """Fence the ingestion, append the operator's record, and return its content.

        Args:
            decide: Function that decides on the log's state. It is called after the fencing, so
                that ingestion cannot change what it decides on.

        Raises:
            ConfigurationError: ``decide`` finds nothing to give up.
            Fenced, DataMissing: meanwhile a process of the source started, or its log was trimmed.
            Unavailable: the broker does not answer.
        """
        log_state = self._log_state()
        # With the fingerprint and the columns of the ingestion: to readers this is one more epoch
        # of the same plan, and neither an upgrade nor a change of the stream's schema.
        writer = BoundaryWriter(
            self._log,
            self._topic,
            [_WRITER],
            EpochStarted(
                _WRITER,
                log_state.fingerprint(_WRITER),
                self._entropy.token(),
                schema=log_state.schema(),
                bucket_ms=self._pipeline.bucket_ms,
            ),
            self._clock,
        )
        try:
            epoch = writer.start()
            decided, last = decide(writer.log_state), writer.log_state.last(_WRITER)
            writer.append(
                BoundaryRecord(
                    replica=_WRITER,
                    epoch=epoch,
                    id=BatchId(self._entropy.token(), 0),
                    prev=writer.tip(),
                    closed=decided.closed,
                    positions=decided.positions,
                    given_up=(decided.given_up,),
                    written_ms=self._clock.now_ms(),
                    past=0 if last is None else last.past,
                )
            )
        finally:
            writer.close()
        return decided

    def _log_state(self, stream: str = "") -> LogState:
        """Read the boundary log of ``stream`` to its end; empty: of the source's own stream."""
        reader = BoundaryReader(
            self._log,
            self._pipeline.topic_names.boundaries(stream or self._source),
            [_WRITER],
            expected=ExpectedStream(bucket_ms=self._pipeline.bucket_ms),
        )
        try:
            reader.read_to_end()
            return reader.log_state
        finally:
            reader.close()

    def _buckets(self, log_state: LogState) -> GivenUp:
        """Return the buckets to give up in ``log_state``; fail if there are none."""
        self._check_runs(log_state)
        closed, width_ms = self._progress(log_state).closed, self._pipeline.bucket_ms
        return to_give_up(
            self._source, closed, self._times, width_ms, format_time(bound_ms(closed, width_ms))
        )

    def _check_runs(self, log_state: LogState) -> None:
        """Fail if the source's ingestion has never run, or if its stream has ended."""
        if log_state.epoch(_WRITER) is None:
            raise ConfigurationError(
                f"the ingestion of source {self._source} has never run: run it once, then the"
                " source can be given up"
            )
        if log_state.heirs:
            raise ConfigurationError(
                f"the stream {self._source} has ended: its source has {log_state.heirs} shards now."
                " Give the command with the pipeline file that has these shards, for one of them"
            )

    def _progress(self, log_state: LogState) -> SourceProgress:
        """Return the progress from which the source's ingestion would continue.

        A shard that has not recorded a position begins after what the ended streams before it have
        closed (``handover.successor_begins``): these buckets are whole, and are not given up.
        """
        source, now_ms = self._pipeline.sources[whole_of(self._source)], self._clock.now_ms()
        last, closed = log_state.last(_WRITER), log_state.closed(_WRITER)
        before: list[EndedStream] = []
        if not read_to(last):
            for stream in source.processes_before(self._source):
                found = self._log_state(stream)
                if found.heirs:  # else its ingestion has not begun here either
                    before.append(ended(source.shard(stream), _WRITER, found))
        return goes_on(source.shard(self._source), last, closed, before, now_ms)


class GiveUpMissing(GiveUp):
    """Command that lets a source continue after input that was deleted before it was read
    (``protocol.edge.missing_input``).

    It closes no bucket: records that the source can still read go into their buckets. It names the
    open buckets up to a given time as those that may lack the deleted records.
    """

    def __init__(
        self,
        log: EventLog,
        pipeline: Pipeline,
        source: str,
        until_ms: int,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """Prepare the command without contacting the broker.

        No missing record may have had an event time later than ``until_ms``, plus the source's
        ``max_ahead``.

        Raises:
            ConfigurationError: as ``GiveUp``.
        """
        super().__init__(log, pipeline, source, Times(0, until_ms), clock, entropy)
        self._until_ms = until_ms

    def find(self) -> list[MissingInput]:
        """Return the ranges of input that are missing now, without writing anything.

        Raises:
            ConfigurationError: none is missing, or the source has not run on this broker.
            Unavailable: the broker does not answer, or a partition has no leader at the moment.
        """
        check_topic(self._log, self._topic, self._pipeline.name)
        log_state = self._log_state()
        self._check_runs(log_state)
        progress = self._progress(log_state)
        return self._missing(progress, self._input(progress))

    def do_missing(self) -> GivenUp:
        """Give up the missing input, and return the buckets that may lack it.

        Raises:
            ConfigurationError: nothing is missing any more.
            Fenced, DataMissing, Unavailable: as ``GiveUp.do``.
        """
        self.find()
        return self.append(self._decide_missing).given_up

    def _decide_missing(self, log_state: LogState) -> GiveUpRequest:
        """Return the decision that moves the positions behind the missing input."""
        self._check_runs(log_state)
        progress = self._progress(log_state)
        state = self._input(progress)
        self._missing(progress, state)
        first, source = progress.closed + 1, self._pipeline.sources[whole_of(self._source)]
        upto_ms = min(EVENT_TIME_MS_MAX, self._until_ms + (source.max_ahead_ms or 0))
        last = max(first, bucket_of(upto_ms, self._pipeline.bucket_ms))
        positions = given_up_missing(tuple(progress.positions), state)
        return GiveUpRequest(GivenUp(self._source, first, last), progress.closed, positions)

    def _missing(self, progress: SourceProgress, state: InputState) -> list[MissingInput]:
        """Return the missing ranges of the input; fail if there are none."""
        found = missing(progress.positions, state)
        if not found:
            raise ConfigurationError(
                f"source {self._source}: no input is missing: every record that it has to read next"
                " exists"
            )
        return found

    def _input(self, progress: SourceProgress) -> InputState:
        """Return the input as the broker describes it.

        Raises:
            ConfigurationError: a topic does not exist.
        """
        source = self._pipeline.sources[whole_of(self._source)]
        with closing(self._log.admin()) as admin, closing(_reader(self._log)) as reader:
            shard = source.shard(self._source)
            state = input_state(admin, reader, source.topics, shard, progress.positions)
        topics = {topic for topic, _ in state.offsets}
        gone = [topic for topic in source.topics if topic not in topics]
        if gone:
            raise ConfigurationError(
                f"source {self._source}: topic {gone[0]} does not exist: create it again first, or"
                " take it out of the pipeline file"
            )
        return state


def _reader(log: EventLog) -> LogReader:
    """Open a reader of offsets alone: uncommitted records occupy offsets too."""
    return log.reader(committed=False, headers=False, timestamps=False)


def describe_missing(
    source: str, found: Sequence[MissingInput], say: Callable[[str], None]
) -> None:
    """Print what is missing, and what follows from giving it up. ``say`` prints a line."""
    for each in found:
        say(f"source {source}: {each}")
    say("  ingestion continues with the next record that exists; nothing else is skipped")
    say(
        f"  results of all open buckets up to --until have the header anabranch-missing with"
        f" {source} in it"
    )


def until_when(pipeline: Pipeline, source: str, until: str | None, now_ms: int) -> int:
    """Return the end of the buckets to give up, in ms: the time in ``until``, or now if it is None.

    Raises:
        ConfigurationError: the time lies in the future, or is left out for a source with simulated
            times.
    """
    declared = pipeline.sources.get(whole_of(source))
    is_simulated = declared is not None and declared.max_ahead_ms is None
    if until is None:
        if is_simulated:
            raise ConfigurationError(
                f"source {source} has `max_ahead: unlimited`, so its times may not be those of the"
                " clock: say --until TIME"
            )
        return now_ms
    found = parse_time_ms("--until", until)
    if found > now_ms and not is_simulated:
        raise ConfigurationError(
            f"--until {until} is in the future: if the source comes back, all of its records up to"
            " then would be late. Give a time that is past"
        )
    return found


def describe(source: str, given_up: GivenUp, width_ms: int, say: Callable[[str], None]) -> None:
    """Print which buckets are given up, and what follows. ``say`` prints a line."""
    first, last = (
        format_time(bound_ms(given_up.first - 1, width_ms)),
        format_time(bound_ms(given_up.last, width_ms)),
    )
    say(
        f"source {source}: given up after {first} up to {last}"
        f" ({given_up.last - given_up.first + 1} buckets)"
    )
    say(
        "  records of them that ingestion has read stay in the results; those that it reads later"
        f" are late. Nothing needs to be done when {source} comes back"
    )
    say(
        f"  results that lack it have the header anabranch-missing with {source} in it, on the"
        " corrected and the live topic"
    )
