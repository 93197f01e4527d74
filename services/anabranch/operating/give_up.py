"""Give up what a source never brings: append an operator's boundary in place of its ingestion
(``protocol.log.given_up``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from anabranch.operating.known_topic import check_topic
from anabranch.pipeline.model import Pipeline
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
from anabranch.runtime.boundary_reader import BoundaryReader, ExpectedStream
from anabranch.runtime.boundary_writer import BoundaryWriter
from anabranch.runtime.source_input import input_state

_WRITER: Final = "0"
"""The one writer of a source."""


def time_of(option: str, text: str) -> int:
    """The time in ms that ``text`` says: ISO 8601, UTC where it names no zone; or a number of ms.

    Raises:
        ConfigurationError: neither, or outside of the years 1970 to 9999.
    """
    try:
        found = int(text) if text.isdecimal() else _milliseconds(datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigurationError(
            f"{option} {text}: give a time as 2026-05-01T14:00:00Z, or as ms since 1970"
        ) from error
    if not 0 <= found <= EVENT_TIME_MS_MAX:
        raise ConfigurationError(f"{option} {text}: not between 1970 and the year 9999")
    return found


def in_words(moment_ms: int) -> str:
    """A time as the options take it."""
    return (
        datetime.fromtimestamp(moment_ms / 1_000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _milliseconds(moment: datetime) -> int:
    return round(
        (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1_000
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """Content of the record by which an operator gives up input."""

    given_up: GivenUp
    closed: int
    positions: tuple[InputPosition, ...]
    """Offsets from which ingestion reads on; empty: this record moves none."""


class GiveUp:
    """One such command, for one source, or one of its shards. Nothing is written before ``do``;
    after a crash within it the command may be given again.
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
        """Nothing is contacted yet.

        Raises:
            ConfigurationError: the pipeline has no such source, or it has shards: each is given up
                by itself.
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
        """What ``do`` would give up, as the log stands now.

        Raises:
            ConfigurationError: it would be nothing, or more than the caller wants; or the source
                has not run on this broker.
            Unavailable: the broker does not answer.
        """
        check_topic(self._log, self._topic, self._pipeline.name)
        return self._of(self._log_state())

    def do(self) -> GivenUp:
        """Give it up; what was given up, which is less than planned where the source has gone on
        meanwhile.

        The ingestion that runs is fenced: it ends at its next write, and its supervisor starts it
        behind the operator's boundary.

        Raises:
            ConfigurationError: there is nothing to give up any more.
            Fenced, DataMissing: a process of the source began, or its log was trimmed, meanwhile:
            give the command again.
            Unavailable: the broker does not answer.
        """
        self._of(self._log_state())
        return self.append(self._decide).given_up

    def _decide(self, log_state: LogState) -> Decision:
        found = self._of(log_state)
        return Decision(found, found.last, read_to(log_state.last(_WRITER)))

    def append(self, decide: Callable[[LogState], Decision]) -> Decision:
        """Append an operator's record, and return what it says.

        Args:
            decide: Is asked once the ingestion that ran is fenced, so what it finds stays as it is.

        Raises:
            ConfigurationError: ``decide`` finds nothing to give up.
            Fenced, DataMissing: a process of the source began, or its log was trimmed, meanwhile.
            Unavailable: the broker does not answer.
        """
        log_state = self._log_state()
        # To every reader this is a process of the source like those before: with their plan and
        # columns.
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
        """Return the state of the log of ``stream`` as it is now; empty: of the source's own."""
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

    def _of(self, log_state: LogState) -> GivenUp:
        self._check_runs(log_state)
        closed, width_ms = self._goes_on(log_state).closed, self._pipeline.bucket_ms
        return to_give_up(
            self._source, closed, self._times, width_ms, in_words(bound_ms(closed, width_ms))
        )

    def _check_runs(self, log_state: LogState) -> None:
        """Raises ConfigurationError where the stream has never begun, or has ended."""
        if log_state.epoch(_WRITER) is None:
            raise ConfigurationError(
                f"source {self._source} has never begun: run its ingestion once, then it can be"
                " given up"
            )
        if log_state.heirs:
            raise ConfigurationError(
                f"{self._source} has ended, and its source has {log_state.heirs} shards by now:"
                " give the command with the pipeline file that says so, for one of these"
            )

    def _goes_on(self, log_state: LogState) -> SourceProgress:
        """Return from where the ingestion of the source would go on.

        A shard that has not recorded a position begins after what the ended streams before it have
        closed (``handover.heir_begins``): these buckets are whole, and are not given up.
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
    """Command that lets a source go on behind input that is gone
    (``protocol.edge.missing_input``).

    Closes nothing: what the source can still read goes into the buckets that it belongs to. Names
    all buckets that are open as those that may lack the missing records, up to a time that is
    given.
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
        """``until_ms``: no missing record had a later event time, save for ``max_ahead``.

        Raises:
            ConfigurationError: as ``GiveUp``.
        """
        super().__init__(log, pipeline, source, Times(0, until_ms), clock, entropy)
        self._until_ms = until_ms

    def find(self) -> list[MissingInput]:
        """Return what is missing now, without changing anything.

        Raises:
            ConfigurationError: nothing is, or the source has not run on this broker.
            Unavailable: the broker does not answer, or a partition has no leader at the moment.
        """
        check_topic(self._log, self._topic, self._pipeline.name)
        log_state = self._log_state()
        self._check_runs(log_state)
        progress = self._goes_on(log_state)
        return self._found(progress, self._input(progress))

    def do_missing(self) -> GivenUp:
        """Give up what is missing; the buckets that may lack it.

        Raises:
            ConfigurationError: nothing is missing any more.
            Fenced, DataMissing, Unavailable: as ``GiveUp.do``.
        """
        self.find()
        return self.append(self._decide_missing).given_up

    def _decide_missing(self, log_state: LogState) -> Decision:
        self._check_runs(log_state)
        progress = self._goes_on(log_state)
        there = self._input(progress)
        self._found(progress, there)
        first, source = progress.closed + 1, self._pipeline.sources[whole_of(self._source)]
        upto_ms = min(EVENT_TIME_MS_MAX, self._until_ms + (source.max_ahead_ms or 0))
        last = max(first, bucket_of(upto_ms, self._pipeline.bucket_ms))
        positions = given_up_missing(tuple(progress.positions), there)
        return Decision(GivenUp(self._source, first, last), progress.closed, positions)

    def _found(self, progress: SourceProgress, there: InputState) -> list[MissingInput]:
        found = missing(progress.positions, there)
        if not found:
            raise ConfigurationError(
                f"source {self._source}: nothing is missing: all that it is to read is there"
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
            there = input_state(admin, reader, source.topics, shard, progress.positions)
        topics = {topic for topic, _ in there.offsets}
        gone = [topic for topic in source.topics if topic not in topics]
        if gone:
            raise ConfigurationError(
                f"source {self._source}: topic {gone[0]} does not exist: create it again first, or"
                " take it out of the pipeline file"
            )
        return there


def _reader(log: EventLog) -> LogReader:
    return log.reader(committed=False, headers=False, timestamps=False)


def describe_missing(
    source: str, found: Sequence[MissingInput], say: Callable[[str], None]
) -> None:
    """Say what is missing, and what follows from giving it up."""
    for each in found:
        say(f"source {source}: {each}")
    say("  ingestion goes on with the next record that is there; nothing else is skipped")
    say(
        f"  results of all buckets that are open have the header anabranch-missing with {source} in"
        " it, up to --until"
    )


def until_when(pipeline: Pipeline, source: str, until: str | None, now_ms: int) -> int:
    """The end of what is given up: what ``--until`` says, or now.

    Raises:
        ConfigurationError: it lies in the future; or it is left out where times are not those of
            the clock.
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
    found = time_of("--until", until)
    if found > now_ms and not is_simulated:
        raise ConfigurationError(
            f"--until {until} is in the future: what the source brings until then would be late,"
            " should it come back"
        )
    return found


def describe(source: str, given_up: GivenUp, width_ms: int, say: Callable[[str], None]) -> None:
    """Say what is given up, and what follows."""
    first, last = (
        in_words(bound_ms(given_up.first - 1, width_ms)),
        in_words(bound_ms(given_up.last, width_ms)),
    )
    say(
        f"source {source}: given up after {first} up to {last}"
        f" ({given_up.last - given_up.first + 1} buckets)"
    )
    say(
        "  what its ingestion has read of them stays in; what it gets of them later is late"
        f" ({source} may come back: go on as usual)"
    )
    say(
        f"  results that lack it have the header anabranch-missing with {source} in it, on the"
        " corrected and the live topic"
    )
