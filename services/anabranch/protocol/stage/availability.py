"""When may a stage go on without some of its input? Timers of buckets, the waits that a pipeline's
``max_delay`` leaves, and what inputs of unequal depth add to them.

Theory of operation. A bucket that is not complete is waited for, but not for ever. Its timer starts
at the first sign that *any* input has got beyond the bucket before it (rule 13; Borealis' SUnion
starts it at a boundary, here a source whose boundary is held back says how far it has got,
``protocol.edge.sources``). Named parts are no sign: a record in front of the clock, or a result
that belongs to the end of a long window, may lie far beyond what can be complete. Since the signs
travel with the log and not with the results, the timers of all stages of a chain start together, so
a chain waits once and not once per stage (as in Borealis' DPC). A stage waits so much shorter, the
more stages come after it, that the tentative bucket of the stage before is there when its own wait
is over.

The first bucket of a failure gets the long wait, ``Waits.first_ms``: a failure that ends before
leaves no trace. With the policy ``process`` later buckets get the short wait, ``Waits.next_ms``:
long enough for the healthy inputs, and for the stages before.

A stage may join a source with a stream that has gone through four stages. It then sees a bucket of
the source four hops before that of the stream, and its timer starts with the source. The usual lag
of the deeper input is no failure, so the wait must leave time for it. A hop's duration depends on
functions, batches and cores, so the process measures the lag (``InputLags``): the time from the
start of a bucket's timer until the input has closed that bucket, by the boundary logs and on the
process's own clock. The median of the last LAG_SAMPLES counts, which a short failure does not move.
Until there is a sample, the lag is HOP_MS for each hop.

A process that was paused must not take its own sleep for a failure. So a wait is over only when the
process, after the deadline, has asked for the ends of all inputs' logs and has read up to them.
Time in which it did not look does not count.

A stream of another owner's cluster may be out of reach while the own one answers. A process cannot
tell which side of the way there has failed, and need not: it lacks that input. Who has lost the own
cluster can show nothing, and says nothing of others.

Invariants:
    AV1 the timer of bucket n never starts before a sign that an input is past n - 1, and never
        starts again.
    AV2 timers start in the order of buckets.
    AV3 a wait is not over while one input's log has not been read to an end requested after the
        deadline.
    AV4 time in which nobody looked (longer than ``STALL_MS``) is added to every wait. Whoever has
        not looked for so long is blind until the logs of all inputs were read to an end requested
        since. So is who left the log of an input unread for want of memory.
    AV5 no wait is over for a bucket of which no input has anything: sources that all stand still,
        or have all ended, have not failed, and there would be nothing to show.
    AV6 a stage whose tentative results nobody sees never goes on without input.
    AV7 an input on another cluster that leaves a question for its end without an answer is silent
        from then on: AV3 and AV4 do not wait for its log, until that was read to an end requested
        since. Waking from a pause ends it, too. They hold for the own cluster all the same: where
        no input is on it, the process asks whether it answers.
    AV8 what is kept of timers does not grow with the time that an input is away: those of long ago
        count as started later than they did, by at most a part of that time (TIMER_ERROR_PARTS).
    IL1 an input that is no deeper than the shallowest has no lag.
    IL2 a lag is at most HOP_LONGEST_MS for each stage that the input has more than the shallowest:
        where stages are slower, the stage goes on without it.
    IL3 what took longer than that says nothing about a hop: it is a failure, or its correction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from anabranch.protocol.limits import CLUSTER_AGAIN_MS, CLUSTER_ANSWER_MS, HOP_MS
from anabranch.protocol.log.boundary_log import LogState

HOP_LONGEST_MS: Final = 1_500
"""The most that is waited for a stage that one input of another has gone through and another has
not, in place of HOP_MS: a stage that takes longer is late itself, and waiting for it would make all
that comes after it late.
"""

LAG_SAMPLES: Final = 61
"""Buckets over which the lag of an input is measured; its median counts, so that the thirty
of a failure do not.
"""


class InputLags:
    """The lags of one stage's inputs, as one replica sees them."""

    def __init__(self, deeper: Mapping[str, int], shallow_ms: int) -> None:
        """``deeper``: per input, its stages beyond those of the shallowest. ``shallow_ms``:
        what a bucket of that one takes from its first sign.
        """
        self._deeper = {name: hops for name, hops in deeper.items() if hops > 0}
        self._shallow_ms = shallow_ms
        self._samples: dict[str, deque[int]] = {
            name: deque(maxlen=LAG_SAMPLES) for name in self._deeper
        }
        self._expected_ms = max(self._deeper.values(), default=0) * HOP_MS
        self.beyond_expected_ms = 0
        """By so much longer than HOP_MS per hop the stage waits for its slowest input; below
        0: shorter.
        """

    def closed(self, name: str, took_ms: int) -> None:
        """Input ``name`` has closed a bucket ``took_ms`` after the bucket's timer started."""
        lag_ms = max(0, took_ms - self._shallow_ms)
        if lag_ms > self._deeper.get(name, 0) * HOP_LONGEST_MS or name not in self._deeper:
            return
        self._samples[name].append(lag_ms)
        self.beyond_expected_ms = max(map(self._lag_ms, self._deeper)) - self._expected_ms

    def _lag_ms(self, name: str) -> int:
        samples = sorted(self._samples[name])
        return samples[len(samples) // 2] if samples else self._deeper[name] * HOP_MS


SLACK_MS: Final = 400
"""Part of ``max_delay`` that no stage may use for waiting: scheduling, delivery, and a
garbage collection.
"""

STALL_MS: Final = 1_000
"""A replica that has not looked at its inputs for longer was paused itself: that time is not
a failure of its inputs.
"""

OWN: Final = ""
"""The own cluster, in place of an input, where no input is on it."""


class Policy(StrEnum):
    """What a stage does with later buckets once it has gone on without input: the variants of
    Delay, Process, and Correct.
    """

    PROCESS = "process"
    """Takes them after the short wait."""
    DELAY = "delay"
    """Gives each of them the long wait."""
    SUSPEND = "suspend"
    """Never goes on without input: results are stable, or late."""


def policy_of(on_missing_input: str, *, is_seen: bool) -> Policy:
    """What a stage does without input (AV6).

    Args:
        on_missing_input: What its author wants.
        is_seen: An output of it, or of a stage after it, has a live topic, or another pipeline may
            read one of these streams.
    """
    return Policy(on_missing_input) if is_seen else Policy.SUSPEND


class Look(Enum):
    """What one round of following the log of an input does."""

    NOTHING = auto()
    """There is no room for more of the input (RE8)."""
    READ_ON = auto()
    """Reads what is there."""
    ASK_END = auto()
    """Asks where the log ends now, and reads on: what is there until then comes bit by bit."""
    READ_TO_END = auto()
    """Reads up to an end that it asks for now: a wait may be over."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round of following the log of an input, as it went."""

    name: str
    began_ms: int
    offset_next: int
    """Where its log was read to in the end."""
    has_read: bool
    is_whole: bool
    """It was read up to an end that was asked for after the round began."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a stage waits for a bucket, counted from the start of the bucket's timer."""

    first_ms: int
    next_ms: int


def waits_of(
    max_delay_ms: int, normal_ms: int, depth: int, height: int, *, hop_ms: int = HOP_MS
) -> Waits:
    """The waits of one stage.

    Args:
        max_delay_ms: What a failure may add to the delay of new results, for the whole pipeline.
        normal_ms: How long a bucket takes without failures from the first sign of it: its width,
            the sources' out-of-orderness, and the hops that one input has behind it and another has
            not, at HOP_MS each (``InputLags`` measures them).
        depth: Stages before this one on the longest path to a source.
        height: Stages from this one to an output on the longest path, itself included.
        hop_ms: What a stage takes from its input to its output.
    """
    first_ms = normal_ms + max(hop_ms, max_delay_ms - SLACK_MS - height * hop_ms)
    return Waits(first_ms, min(first_ms, normal_ms + hop_ms * (1 + depth)))


def delay_bound_ms(height: int, *, hop_ms: int = HOP_MS) -> int:
    """The smallest ``max_delay`` that a path of ``height`` stages can hold."""
    return SLACK_MS + (height + 1) * hop_ms


TIMER_STEPS_MAX: Final = 8_192
"""Steps of the timers of buckets, beyond which older ones are joined (AV8). While one input is
away, each bucket of the others adds one and none is read: 345 600 a day. Joined steps are a few
thousand after years, since the older they are the fewer there are.
"""
TIMER_ERROR_PARTS: Final = 100
"""A joined timer counts as started later than it did, by at most this part of the time since: a
wait takes a hundredth longer, which nobody notices of a wait that is so long.
"""


class BucketTimers:
    """Times at which the timers of buckets started. Kept as steps, since whole ranges of buckets
    start together, and those of long ago only roughly (AV8).
    """

    def __init__(self) -> None:
        self._upto: list[int] = []
        """Timers of the buckets up to ``_upto[i]``, and above the step before, count as started at
        ``_at[i]``. Ascending (AV2).
        """
        self._at: list[int] = []
        self._highest = 0

    def observe(self, now_ms: int, past: int) -> None:
        """An input is known to have got beyond bucket ``past``: the timer of the next one has
        started (AV1). 0: nothing is known yet.
        """
        if past < 1 or past + 1 <= self._highest:
            return
        self._highest = past + 1
        if self._at and self._at[-1] == now_ms:
            self._upto[-1] = past + 1
        else:
            self._upto.append(past + 1)
            self._at.append(now_ms)
        if len(self._upto) > TIMER_STEPS_MAX:
            self._join(now_ms)

    def _join(self, now_ms: int) -> None:
        """Leave out the steps without which no timer is wrong by more than a part of its age: their
        buckets belong to the next step then, which started later, so no wait is over early (AV1).
        """
        kept = [0]
        for step in range(1, len(self._at) - 1):
            # All timers of the next step have started since the last step that is kept.
            error_ms = self._at[step + 1] - self._at[kept[-1]]
            if error_ms * TIMER_ERROR_PARTS > now_ms - self._at[step + 1]:
                kept.append(step)
        kept.append(len(self._at) - 1)
        self._upto = [self._upto[step] for step in kept]
        self._at = [self._at[step] for step in kept]

    def started(self, bucket: int) -> int | None:
        """When the timer of ``bucket`` started; None: it has not. Of a bucket that was
        forgotten: not before it did.
        """
        step = bisect_left(self._upto, bucket)
        return self._at[step] if step < len(self._upto) else None

    def started_before(self, at_ms: int) -> int:
        """The last bucket whose timer started at ``at_ms`` or earlier; 0: none."""
        step = bisect_right(self._at, at_ms) - 1
        return self._upto[step] if step >= 0 else 0

    def shift(self, by_ms: int) -> None:
        """Let ``by_ms`` not count for any timer that runs (AV4)."""
        self._at = [at + by_ms for at in self._at]

    def forget(self, upto: int) -> None:
        """Buckets up to ``upto`` were read: bounds memory. The newest step stays, it knows
        what has started.
        """
        step = min(bisect_left(self._upto, upto + 1), len(self._upto) - 1)
        if step > 0:
            del self._upto[:step], self._at[:step]


class Availability:
    """The timers of one stage replica over all its inputs."""

    def __init__(
        self,
        inputs: Iterable[str],
        waits: Waits,
        policy: Policy,
        lags: InputLags | None = None,
        elsewhere: Collection[str] = (),
    ) -> None:
        """``lags``: of inputs whose depths differ; None: they do not. ``elsewhere``: the inputs
        that are on other owners' clusters.
        """
        self._waits, self.policy = waits, policy
        self._lags = InputLags({}, 0) if lags is None else lags
        self._closed: dict[str, int] = {}
        self._timers = BucketTimers()
        self._read_to: dict[str, int] = dict.fromkeys(inputs, -1)
        self.elsewhere = frozenset(elsewhere)
        if self.elsewhere >= self._read_to.keys():
            self._read_to[OWN] = -1
        self._silent: dict[str, int] = {}
        """The time of the question that an input elsewhere has left without an answer."""
        self._question_ms: dict[str, int] = {}
        """The time of the last question to the cluster of an input elsewhere for the end of its
        log.
        """
        self._ends: dict[str, tuple[int, int]] = {}
        """Of logs that are being read up to an end: the time of the question, and the end."""
        self._left: dict[str, int] = dict.fromkeys(self._read_to, -1)
        """When the log of an input was last left unread."""
        self._looked_ms: int | None = None
        self._moved_ms = 0
        self.woke_ms = 0
        """When this process looked for the first time after it had not for long; 0: it always
        has.
        """
        self._seen = 0

    def observe(self, now_ms: int, past: int, seen: int | None = None) -> None:
        """Look at the inputs.

        Args:
            now_ms: Now.
            past: The furthest is known to be past this bucket (``LogState.past_upto``).
            seen: The last bucket of which an input has anything, or which it has closed
                (``LogState.seen_upto``); None: ``past + 1``.
        """
        self._seen = max(self._seen, past + 1 if seen is None else seen)
        if self._looked_ms is not None and now_ms - self._looked_ms > STALL_MS:
            self._timers.shift(now_ms - self._looked_ms)
            self._moved_ms += now_ms - self._looked_ms
            self.woke_ms = now_ms
        self._looked_ms = now_ms
        self._timers.observe(now_ms, past)

    @property
    def waits(self) -> Waits:
        """How long is waited now, by the lags of the inputs."""
        beyond_ms = self._lags.beyond_expected_ms
        if not beyond_ms:
            return self._waits
        first_ms = self._waits.first_ms + beyond_ms
        return Waits(first_ms, min(first_ms, self._waits.next_ms + max(0, beyond_ms)))

    def closed(self, name: str, upto: int, now_ms: int) -> None:
        """Input ``name`` is complete up to bucket ``upto``."""
        before, self._closed[name] = self._closed.get(name, 0), upto
        started = self._timers.started(before + 1) if 0 < before < upto else None
        if started is not None:
            self._lags.closed(name, now_ms - started)

    def look(self, name: str, now_ms: int, *, wanted: bool) -> Look:
        """How the log of input ``name``, for which there is room, is read on: a process that slept
        first looks, then judges. ``wanted``: a look may decide something (``look_wanted``).
        """
        end_wanted = self.end_wanted(name)
        if name in self.elsewhere:
            asks = self._asks_elsewhere(name, now_ms, wanted=wanted or end_wanted)
            return Look.ASK_END if asks else Look.READ_ON
        if wanted:
            return Look.READ_TO_END
        question_ms, _ = self._ends.get(name, (-1, 0))
        asks = end_wanted and question_ms < self.look_due_ms(name)
        return Look.ASK_END if asks else Look.READ_ON

    def clusters_to_ask(
        self, name: str, look: Look, *, is_opening: bool, own_wanted: bool
    ) -> list[str]:
        """The clusters that are asked now, one after the other, where the log of input ``name`` is
        looked at so (AV7): before that of the input the own one. Who has no answer asks no further:
        who has lost the own cluster says nothing of others.

        Args:
            name: The input.
            look: As ``look`` said.
            is_opening: Nobody knows yet whether its log can be read: nothing is judged before.
            own_wanted: Whether the own cluster answers may decide something now.
        """
        ends = [name] if look is Look.ASK_END else []
        if name not in self.elsewhere:
            return ends
        if is_opening:
            return []
        return [OWN, *ends] if own_wanted else ends

    def followed(self, last: Round, log_states: Mapping[str, LogState], now_ms: int) -> bool:
        """A round is over. Whether anything came of it that may make a plan.

        ``log_states``: of all inputs, by now.
        """
        past = max(log_state.past_upto for log_state in log_states.values())
        seen = max(log_state.seen_upto for log_state in log_states.values())
        self.observe(now_ms, past, seen)
        self.closed(last.name, log_states[last.name].upto, now_ms)
        if last.is_whole:
            self.read_to_end(last.name, last.began_ms)
        return self.reached(last.name, last.offset_next) or last.is_whole or last.has_read

    def end_found(self, name: str, question_ms: int, end: int) -> None:
        """The log of input ``name`` ends at the offset ``end``, as an answer to the question of
        ``question_ms``. An earlier end counts until it is reached, if it still says enough.
        """
        self._question_ms[name] = question_ms
        before_ms, _ = self._ends.get(name, (-1, 0))
        if before_ms < self.look_due_ms(name):
            self._ends[name] = question_ms, end

    def reached(self, name: str, offset: int) -> bool:
        """The log of input ``name`` was read to ``offset``. Is that the requested end?"""
        question_ms, end = self._ends.get(name, (0, offset + 1))
        if offset < end:
            return False
        self.read_to_end(name, question_ms)
        return True

    def read_to_end(self, name: str, question_ms: int) -> None:
        """The log of input ``name`` was read up to an end requested at ``question_ms``."""
        self._ends.pop(name, None)
        self._read_to[name] = max(self._read_to[name], question_ms)
        if question_ms >= self._silent.get(name, -1):
            self._silent.pop(name, None)

    def unanswered(self, name: str, question_ms: int, now_ms: int) -> None:
        """The cluster of input ``name`` has not answered the question of ``question_ms`` for the
        end of its log. Elsewhere it is silent (AV7); without the own one nothing is judged. Who
        slept meanwhile has not waited for the answer.
        """
        if name not in self.elsewhere:
            return
        self._question_ms[name] = question_ms
        self._ends.pop(name, None)
        if now_ms - question_ms <= CLUSTER_ANSWER_MS + STALL_MS:
            self._silent[name] = question_ms

    def is_silent(self, name: str) -> bool:
        """Whether input ``name`` is on a cluster that does not answer (AV7)."""
        return self._silent.get(name, -1) >= self.look_due_ms(name)

    def _asks_elsewhere(self, name: str, now_ms: int, *, wanted: bool) -> bool:
        """Whether to ask the cluster of input ``name``, which is elsewhere, now for the end of its
        log: not again at once while it is silent, or its log is being read up to an end.
        """
        silent, question_ms = self.is_silent(name), self._question_ms.get(name)
        waits = question_ms is not None and (silent or name in self._ends)
        if waits and question_ms is not None and now_ms - question_ms < CLUSTER_AGAIN_MS:
            return False
        return wanted or silent

    def left_unread(self, name: str, now_ms: int) -> None:
        """There is no room for more of input ``name``: who cannot look is blind (AV4)."""
        self._left[name] = now_ms

    def look_due_ms(self, name: str) -> int:
        """What the log of input ``name`` has is known when it was read to an end requested at this
        time or later.
        """
        return max(self.woke_ms, self._left[name] + 1)

    @property
    def sighted_ms(self) -> int:
        """Who is not blind has known since then, at the earliest, what the inputs have."""
        return max(map(self.look_due_ms, self._read_to))

    def end_wanted(self, name: str) -> bool:
        """Whether the log of input ``name`` was not read to an end yet that was requested since
        this process woke, or began, or left it unread, nor is silent.
        """
        return not self.is_silent(name) and self._read_to[name] < self.look_due_ms(name)

    def own_wanted(self) -> bool:
        """Whether the own cluster gets a question of its own, and has not answered since this
        process woke or began (AV7).
        """
        return OWN in self._read_to and self.end_wanted(OWN)

    def blind(self, now_ms: int) -> bool:
        """Whether this process does not know what its inputs have by now (AV4): it has begun,
        or woken, or had no room, and has not read all logs since.
        """
        looked = self._looked_ms is not None and now_ms - self._looked_ms <= STALL_MS
        return not looked or any(map(self.end_wanted, self._read_to))

    def over(self, bucket: int, wait_ms: int) -> bool:
        """Whether ``bucket`` was waited for long enough (AV3)."""
        started = self._started(bucket)
        return started is not None and started + wait_ms <= self._known_to()

    def first_over(self, bucket: int) -> bool:
        """Whether the long wait of ``bucket`` is over."""
        return self.over(bucket, self.waits.first_ms)

    def overdue(self, bucket: int, now_ms: int) -> bool:
        """Whether the time of the long wait of ``bucket`` has passed, whether anybody looked
        since or not.
        """
        started = self._started(bucket)
        return started is not None and started + self.waits.first_ms <= now_ms

    def moved(self, now_ms: int) -> None:
        """The stable query went on."""
        self._moved_ms = now_ms

    def still(self) -> bool:
        """Whether the stable query did not go on for a whole long wait (rule 14), AV3 and AV4
        as for buckets.
        """
        return self._moved_ms + self.waits.first_ms <= self._known_to()

    def look_wanted(
        self,
        name: str,
        bucket: int,
        now_ms: int,
        *,
        branching: bool,
        again: bool = False,
        extended: bool = False,
    ) -> bool:
        """Whether a wait for ``bucket`` or a later one may be over, if input ``name`` were read to
        its end now; of an OWN that gets no question of its own: never.

        Args:
            name: The input.
            bucket: The next one that the stage could go on with.
            now_ms: Now.
            branching: The branch asks: the short wait counts.
            again: A branch runs, and the stable query asks: its wait begins anew whenever it goes
                on.
            extended: As in ``due_upto``, for the branch.
        """
        started = self._started(bucket)
        if started is None:
            return False
        wait_ms = self._later_wait_ms(extended=extended) if branching else self.waits.first_ms
        if branching:  # the newest deadline that has passed, not only that of the next bucket
            last = min(self._seen, self._timers.started_before(now_ms - wait_ms))
            started = self._timers.started(last) if last >= bucket else started
        elif again:
            started = max(started, self._moved_ms)
        return started is not None and self._decides(name, started + wait_ms, now_ms)

    def due_upto(self, stable_upto: int, tentative_upto: int, *, extended: bool = False) -> int:
        """The last bucket that a branch may take, whatever its input has of it.

        Args:
            stable_upto: All inputs are complete up to here.
            tentative_upto: All inputs have stable or tentative buckets up to here.
            extended: An input that lacks the bucket says that it is working on tentative ones: it
                gets one hop more.
        """
        there = stable_upto if self.policy is Policy.DELAY else tentative_upto
        wait_ms = self._later_wait_ms(extended=extended)
        return max(
            there,
            min(self._seen, self._timers.started_before(self._known_to() - wait_ms)),
        )

    def forget(self, upto: int) -> None:
        """Every query has read the buckets up to ``upto``."""
        self._timers.forget(upto)

    def _started(self, bucket: int) -> int | None:
        """When the timer of ``bucket`` started; None: it has not, or there is nothing of the
        bucket (AV5).
        """
        return self._timers.started(bucket) if bucket <= self._seen else None

    def _known_to(self) -> int:
        """All is known that the inputs had then, but of those that are silent (AV3, AV7)."""
        return min(
            question_ms for name, question_ms in self._read_to.items() if not self.is_silent(name)
        )

    def _decides(self, name: str, due_ms: int, now_ms: int) -> bool:
        """Whether a look at input ``name`` may show that a wait is over at ``due_ms``. The question
        to a cluster elsewhere comes so early that its answer, or silence, is known at that time.
        """
        if name not in self._read_to or self.is_silent(name):
            return False
        read_to_ms, early_ms = self._read_to[name], due_ms - CLUSTER_ANSWER_MS
        is_early = name in self.elsewhere and read_to_ms < early_ms <= now_ms
        return is_early or read_to_ms < due_ms <= now_ms

    def _later_wait_ms(self, *, extended: bool) -> int:
        return (self.waits.first_ms if self.policy is Policy.DELAY else self.waits.next_ms) + (
            HOP_MS if extended else 0
        )
