"""The split of a shard into its halves, as a process of the shard carries it out: it compares their
logs with that of the shard, answers the attempt, and ends the stream
(``protocol.stage.splitting``).

Nothing is kept: after a crash the next process reads the logs again, and compares anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from anabranch.pipeline.waits import known_horizon_buckets
from anabranch.protocol.control.records import SplitStep, Step
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.stage.splitting import (
    PROVEN_BUCKETS,
    Attempt,
    SplitDriver,
    SplitPhase,
    half_begins_for,
    half_runs,
    only_ends,
)
from anabranch.streams.stream_life import life_of
from anabranch.streams.stream_logs import open_stream

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Clock, EventLog
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.log.boundary_log import LogState
    from anabranch.streams.boundary_reader import BoundaryReader


@dataclass(frozen=True, slots=True)
class OwnSplit:
    """Access to the split of one shard, as its node provides it. The replica's thread calls it."""

    attempt: Callable[[], Attempt] = Attempt
    """Function that returns the newest attempt to split the shard."""
    answer: Callable[[SplitStep], str] = lambda _step: ""
    """Function that writes the answer to an attempt, and returns why it cannot be written; empty:
    it is. What cannot be written now is asked for again.
    """
    parent_attempt: Callable[[], Attempt] = Attempt
    """Function that returns the newest attempt to split the shard that this one is a half of."""


NO_SPLIT: Final = OwnSplit()

_COMPARE_EVERY_MS: Final = 1_000
"""Interval, in ms, between comparisons of a process that has not begun."""
_LIFE_CHECK_MS: Final = 10_000
"""Interval, in ms, between checks whether the log of a shard that was split was made anew. Long,
since each asks the broker, and topics are made anew by hand.
"""


class SplitConfirmedError(Exception):
    """Raised when a process has begun its epoch and only has to end the stream, since the split of
    its shard is confirmed.
    """


class ShardSplit:
    """Split of one shard, as one of its processes carries it out. The replica's thread calls it."""

    def __init__(self, context: ServiceContext, stage: str) -> None:
        """Begin without an attempt. ``stage``: the shard."""
        self._context, self._stage = context, stage
        self.access = NO_SPLIT
        """Access to the log of moves. The node sets it before the replica starts."""
        self._proof: SplitProof | None = None
        self._log: tuple[str, BoundaryReader] | None = None
        """Life of the shard's log, and its reader, while a process waits for the end of the stream.
        """
        self._newest = -1
        """Newest attempt when this process began, if it is that of a half; else -1."""
        self.is_over = False
        """Whether the stream has ended, because the halves have taken over."""
        self.epoch, self.life = -1, ""
        """Epoch of this process, or the newest one in the stream, and the life of the stream's log
        (``streams.stream_life``), once the split is over.
        """
        self._life_checked_ms = self._compared_ms = 0
        self._not_answered = ""
        """Reason why the last answer could not be written; empty: it was."""

    @property
    def successors(self) -> str:
        """Names of the halves, for people."""
        return " and ".join(self._context.pipeline.halves(self._stage))

    @property
    def rest(self) -> str:
        """Condition that this shard waits for after its end, for people."""
        if half_runs(self.access.attempt()):
            return f"nothing: {self.successors} have taken over"
        return (
            f"a command: {self.successors} take over, and do not run, since the log of moves was"
            f" made anew: give `anabranch split {self._stage}`"
        )

    @property
    def is_read(self) -> bool:
        """Whether readers follow the stream, or soon will: that of a half, once its split is
        confirmed.
        """
        is_half = bool(self._context.pipeline.stages[self._stage].parent)
        return not is_half or self.access.parent_attempt().phase is SplitPhase.CONFIRMED

    @property
    def is_awaited(self) -> bool:
        """Whether the halves wait for the next stable bucket of this shard, as far as is known."""
        return self._proof is not None and self._proof.is_awaited

    def begin_for(self) -> int:
        """Return the attempt for which the process begins (``half_begins_for``); -1: it is no half.

        Raises:
            Unavailable: a log cannot be read.
        """
        self._newest = newest = self.access.parent_attempt().number
        if newest < 0:
            return -1
        shard = self._read(self._context.pipeline.stages[self._stage].parent)
        return half_begins_for(newest, shard, partial(self._read, self._stage))

    def _read(self, stream: str) -> LogState:
        """Read the log of ``stream`` to its end. Return its state."""
        with closing(open_stream(self._context.log, self._context.pipeline, stream)) as reader:
            reader.read_to_end()
            return reader.log_state

    def check_attempt(self) -> None:
        """Check that the attempt that was the newest one when this process began still is.

        Raises:
            Unavailable: there is a newer one: the process begins again, for that.
        """
        number = self.access.parent_attempt().number
        if number > self._newest:
            raise Unavailable(f"{self._stage}: its shard is to be split anew: it begins again")

    def was_carried_out(self) -> bool:
        """Return whether a process of the shard has ended the stream: then the split is over.

        Raises:
            Unavailable: the log of the shard cannot be read.
        """
        if self.access.attempt().phase is not SplitPhase.CONFIRMED:
            return False
        context = self._context
        try:
            if self._log is None:
                # The life first: a log that is made anew in between is noticed by ``check_life``.
                life = life_of(context.log, context.pipeline.topic_names.boundaries(self._stage))
                self._log = life, open_stream(context.log, context.pipeline, self._stage)
            life, reader = self._log
            reader.read_to_end()
        except Exception:
            self._close_log()
            raise
        state = reader.log_state
        state.forget(state.upto)
        if state.heirs:
            self.over(max(state.epoch(writer) or 0 for writer in state.writers), life)
        return self.is_over

    def over(self, epoch: int, life: str) -> None:
        """Note that the stream has ended. ``epoch``, ``life``: see the attributes."""
        self._close_log()
        # Last what the thread of the heartbeats looks at first.
        self.epoch, self.life, self.is_over = epoch, life, True

    def confirm(self) -> None:
        """Confirm a split that is wanted although the stream has ended: the log of moves was made
        anew since (HV11).
        """
        attempt = self.access.attempt()
        if attempt.phase is SplitPhase.WANTED:
            now_ms = self._context.clock.now_ms()
            self.access.answer(SplitStep(self._stage, Step.CONFIRMED, now_ms, attempt.number))

    def check_life(self) -> None:
        """Check from time to time, after the end, that the stream is still the one that ended. A
        broker that does not answer is asked again.

        Raises:
            Unavailable: its log was made anew: the shard begins again.
        """
        context, now_ms = self._context, self._context.clock.monotonic_ms()
        if now_ms - self._life_checked_ms < _LIFE_CHECK_MS:
            return
        self._life_checked_ms, topic = now_ms, context.pipeline.topic_names.boundaries(self._stage)
        life = self.life
        with suppress(Unavailable):
            life = life_of(context.log, topic)
        if life != self.life:
            raise Unavailable(f"topic {topic} was made anew: {self._stage} is not split any more")

    def round(self, detail: dict[str, Any]) -> bool:
        """Answer the attempt if that is due. Return whether the stream must end, since the attempt
        is confirmed. ``detail``: of the status, which shows the attempt.
        """
        attempt = self.access.attempt()
        if self._proof is not None and (
            attempt.phase is not SplitPhase.WANTED or attempt.number != self._proof.attempt
        ):
            self.close()
        if attempt.phase is SplitPhase.NONE:
            detail.pop("split", None)
            return False
        shown: dict[str, object] = {
            "phase": attempt.phase.name.lower(),
            "attempt": attempt.number,
            "halves": self._context.pipeline.halves(self._stage),
        }
        if attempt.phase is SplitPhase.WITHDRAWN:
            shown["reason"] = attempt.reason
        elif attempt.phase is SplitPhase.WANTED:
            shown |= self._compare(attempt.number)
        detail["split"] = shown
        return attempt.phase is SplitPhase.CONFIRMED

    def round_before_begin(self, detail: dict[str, Any]) -> None:
        """Answer the attempt if that is due, from time to time, in a process that stands by or
        waits for a checkpoint: the answer needs neither. ``detail``: as for ``round``.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms - self._compared_ms >= _COMPARE_EVERY_MS:
            self._compared_ms = now_ms
            self.round(detail)

    def check_begin(self) -> None:
        """Check that there is anything left to compute for a process whose epoch has begun.

        Raises:
            SplitConfirmedError: the split is confirmed: it has to end the stream (HV13).
        """
        if only_ends(self.access.attempt()):
            raise SplitConfirmedError

    def _compare(self, attempt: int) -> dict[str, object]:
        """Compare the shard with its halves and give the answer that follows. Return what is known
        by now, for people.
        """
        context = self._context
        if self._proof is None:
            self._proof = SplitProof(
                context.log, context.pipeline, self._stage, attempt, context.clock
            )
        answer = self._proof.answer()
        shown = self._proof.shown()
        if answer is None:
            return shown
        why = self.access.answer(answer)
        context.crash_point("processing.split_answered")
        if why != self._not_answered:
            self._not_answered = why
            if why:
                context.logger.warning("split_not_answered", shard=self._stage, why=why)
        return shown | ({"trouble": f"the answer cannot be recorded: {why}"} if why else {})

    def close(self) -> None:
        """Close the logs. Idempotent."""
        self._close_log()
        if self._proof is not None:
            self._proof.close()
            self._proof = None

    def _close_log(self) -> None:
        if self._log is not None:
            self._log[1].close()
            self._log = None


class SplitProof:
    """Comparison of the shard ``stage`` with its halves for one attempt, by their boundary logs.
    One thread calls it.
    """

    def __init__(
        self, log: EventLog, pipeline: Pipeline, stage: str, attempt: int, clock: Clock
    ) -> None:
        """Begin; the logs are opened by ``answer``."""
        self._log, self._pipeline, self._clock = log, pipeline, clock
        self._streams = [stage, *pipeline.halves(stage)]
        self._readers: list[BoundaryReader] = []
        self._driver = SplitDriver(
            stage,
            attempt,
            clock.monotonic_ms(),
            horizon=known_horizon_buckets(pipeline, stage),
            width_ms=pipeline.bucket_ms,
        )
        self.trouble = ""
        """Reason why the logs cannot be read now; empty: they can."""

    @property
    def attempt(self) -> int:
        """Number of the attempt."""
        return self._driver.attempt

    @property
    def is_awaited(self) -> bool:
        """Whether the halves wait for the shard, as the logs said last."""
        return self._driver.is_awaited

    def answer(self) -> SplitStep | None:
        """Read what is new in the logs. Return the answer that is due; None: none yet."""
        try:
            self._read()
        except Unavailable as error:
            # The next call opens them anew, and compares only buckets that it has not compared.
            self.trouble = str(error)
            self.close()
            return None
        self.trouble = ""
        shard, *halves = (reader.log_state for reader in self._readers)
        answer = self._driver.answer(
            self._clock.monotonic_ms(), self._clock.now_ms(), shard, halves
        )
        for reader in self._readers:
            reader.log_state.forget(self._driver.proof.upto)
        return answer

    def _read(self) -> None:
        """Read all logs to their ends. The shard first: so the halves are not found behind it only
        because it was read later.
        """
        for stream in self._streams[len(self._readers) :]:
            self._readers.append(open_stream(self._log, self._pipeline, stream))
        for reader in self._readers:
            reader.read_to_end()

    def shown(self) -> dict[str, object]:
        """Return what the comparison has come to, for the status."""
        found: dict[str, object] = {
            "compared": self._driver.proof.compared,
            "needed": PROVEN_BUCKETS,
        }
        if self._readers:
            shard, *halves = (reader.log_state for reader in self._readers)
            found["behind_ms"] = [
                None if buckets is None else buckets * self._pipeline.bucket_ms
                for buckets in self._driver.behind(shard, halves)
            ]
        return found | ({"trouble": self.trouble} if self.trouble else {})

    def close(self) -> None:
        """Close the logs. Idempotent."""
        for reader in self._readers:
            reader.close()
        self._readers = []
