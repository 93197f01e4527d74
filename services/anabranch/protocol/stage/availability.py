"""Availability of a stage's input: decides when a stage may continue without some of it. Timers of
buckets, the waits that a pipeline's ``max_delay`` leaves, and the additional lag of inputs with
more stages behind them.

Theory of operation. A stage waits for an incomplete bucket, but not for ever. The bucket's timer
starts at the first sign that *any* input has passed the bucket before it (rule 13; Borealis' SUnion
starts it at a boundary, here a source whose boundary is held back reports how far it is,
``protocol.edge.sources``). Named parts are no sign: a record ahead of the clock, or a result that
belongs to the end of a long window, may be far beyond the buckets that can be complete. Since the
signs travel with the log and not with the results, the timers of all stages of a chain start
together, so a chain waits once and not once per stage (as in Borealis' DPC). The more stages follow
a stage, the shorter it waits, so that the tentative bucket of the previous stage exists when its
own wait is over.

Each output may have a ``max_delay`` of its own. A stage waits as its strictest output demands
(``Ahead``), since a result that it has not made nobody can show. A patient output behind it pays
nothing for that: a stage on the way to patient outputs alone keeps its longer wait, although the
previous stage offers tentative buckets long before, and where one stage has outputs of both kinds,
delivery delays what the patient one shows (``protocol.edge.live_choice``).

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

A process that was paused must not count its own pause as a failure. So a wait is over only when the
process, after the deadline, has requested the ends of all inputs' logs and has read up to them.
Time in which it did not check its inputs does not count.

A stream of another owner's cluster may be unreachable while the own one answers. A process cannot
tell which side of the connection has failed, and need not: that input is missing. A process that
has lost the own cluster can publish nothing, and does not judge other clusters.

Invariants:
    AV1 the timer of bucket n never starts before a sign that an input has passed n - 1, and never
        starts again.
    AV2 timers start in the order of buckets.
    AV3 a wait is not over while one input's log has not been read to an end requested after the
        deadline.
    AV4 time without a check of the inputs (longer than ``STALL_MS``) is added to every wait. After
        such a pause a process is blind until the logs of all inputs were read to an end requested
        since. It is also blind while it leaves the log of an input unread for lack of memory.
    AV5 no wait is over for a bucket of which no input has anything: if all sources are idle, or
        have ended, none has failed, and there is nothing to publish.
    AV6 a stage whose tentative results no reader sees never continues without input.
    AV7 an input on another cluster that does not answer a request for its log's end is silent from
        then on: AV3 and AV4 do not wait for its log until that was read to an end requested since,
        or until the process wakes from a pause. They still hold for the own cluster: if no input is
        on it, the process checks by a request of its own that it answers.
    AV8 the memory for timers does not grow with the time that an input is missing: old ones count
        as started later than they did, by at most a part of their age (TIMER_ERROR_PARTS).
    AV9 a complete bucket is late, for a stage that sheds, when it is as old as the long wait: a
        failure of the stage itself counts from the same sign as one of its inputs. No log need be
        read for that, since the bucket is there.
    AV10 the first wait of a stage is no longer than any output behind it that shows tentative
        results allows, and no shorter than the strictest of them demands.
    AV11 the long wait for a bucket is over, too, when a stage before this one was overloaded and
        has had its own long wait for it, and the time is over by which this one waits longer.
        Records of such a stage come as late as its batches end, and the timers that they start.
    IL1 an input that is no deeper than the shallowest has no lag.
    IL2 a lag is at most HOP_LONGEST_MS for each stage that the input has more than the shallowest:
        if stages are slower, the stage continues without that input.
    IL3 a longer time is no sample of a hop: it is a failure, or its correction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from anabranch.protocol.limits import CLUSTER_AGAIN_MS, CLUSTER_ANSWER_MS, HOP_MS
from anabranch.protocol.log.boundary_log import LogState

HOP_LONGEST_MS: Final = 1_500
"""Upper limit of the lag per stage that one input has passed through and another has not, in ms, in
place of HOP_MS. A slower stage is late itself; waiting for it would make all stages after this one
late.
"""

LAG_SAMPLES: Final = 61
"""Number of buckets over which the lag of an input is measured. The median counts, so that the
thirty buckets of a failure do not move it.
"""


class InputLags:
    """Measured lags of one stage's inputs, as one replica observes them."""

    def __init__(self, deeper: Mapping[str, int], shallow_ms: int) -> None:
        """Start without samples. ``deeper``: per input, the number of stages it has passed through
        beyond those of the shallowest. ``shallow_ms``: expected time of the shallowest input from
        the first sign of a bucket until it is closed.
        """
        self._deeper = {name: hops for name, hops in deeper.items() if hops > 0}
        self._shallow_ms = shallow_ms
        self._samples: dict[str, deque[int]] = {
            name: deque(maxlen=LAG_SAMPLES) for name in self._deeper
        }
        self._expected_ms = max(self._deeper.values(), default=0) * HOP_MS
        self.beyond_expected_ms = 0
        """Difference between the measured lag of the slowest input and HOP_MS per hop, in ms;
        negative if it is faster.
        """

    def closed(self, name: str, took_ms: int) -> None:
        """Add a sample: input ``name`` closed a bucket ``took_ms`` after the bucket's timer
        started.
        """
        lag_ms = max(0, took_ms - self._shallow_ms)
        if lag_ms > self._deeper.get(name, 0) * HOP_LONGEST_MS or name not in self._deeper:
            return
        self._samples[name].append(lag_ms)
        self.beyond_expected_ms = max(map(self._lag_ms, self._deeper)) - self._expected_ms

    def _lag_ms(self, name: str) -> int:
        samples = sorted(self._samples[name])
        return samples[len(samples) // 2] if samples else self._deeper[name] * HOP_MS


SLACK_MS: Final = 400
"""Part of ``max_delay`` that no stage may use for waiting, in ms: it is for scheduling, delivery,
and a garbage collection.
"""

STALL_MS: Final = 1_000
"""Time without a check of its inputs, in ms, after which a replica counts as paused itself: that
time is not a failure of its inputs.
"""

OWN: Final = ""
"""Stands for the own cluster in place of an input, if no input is on it."""


class Policy(StrEnum):
    """Treatment of later buckets once a stage has continued without input: the variants of Delay,
    Process, and Correct.
    """

    PROCESS = "process"
    """Processes them after the short wait."""
    DELAY = "delay"
    """Gives each of them the long wait."""
    SUSPEND = "suspend"
    """Never continues without input: results are stable, or late."""


def policy_of(on_missing_input: str, *, is_seen: bool) -> Policy:
    """Return how a stage treats missing input (AV6).

    Args:
        on_missing_input: Setting of the pipeline file.
        is_seen: Whether an output of the stage, or of a later one, has a live topic, or another
            pipeline may read one of these streams.
    """
    return Policy(on_missing_input) if is_seen else Policy.SUSPEND


class RoundKind(Enum):
    """Kind of one round of following an input's log."""

    NOTHING = auto()
    """Skips the round: there is no room for more of the input (RE8)."""
    READ_ON = auto()
    """Reads the records that are available."""
    ASK_END = auto()
    """Requests the log's current end and reads on: the records up to there arrive over several
    rounds.
    """
    READ_TO_END = auto()
    """Requests the log's current end and reads up to it in this round: a wait may be over."""


@dataclass(frozen=True, slots=True)
class Round:
    """Outcome of one round of following an input's log."""

    name: str
    began_ms: int
    offset_next: int
    """Offset up to which the log has been read."""
    has_read: bool
    is_whole: bool
    """Whether the log was read up to an end that was requested after the round began."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times of a stage for a bucket, in ms, counted from the start of the bucket's
    timer.
    """

    first_ms: int
    next_ms: int


class Ahead(NamedTuple):
    """Output with tentative results, as seen from a stage before it."""

    max_delay_ms: int
    """Maximum time that a failure may add to the delay of the output's new results, in ms."""
    height: int
    """Number of stages from this one to the output on the longest path, itself included."""
    output: str

    def from_before(self) -> Ahead:
        """Return the same output as seen from the stage before."""
        return self._replace(height=self.height + 1)


def strictest(outputs: Iterable[Ahead]) -> Ahead | None:
    """Return the output that leaves a stage the least time to wait (AV10); None if there is
    none.

    ``outputs``: the outputs behind the stage. It is enough to pass the strictest output behind each
    reader of the stage.
    """
    return min(outputs, key=lambda each: each.max_delay_ms - each.height * HOP_MS, default=None)


def waits_of(max_delay_ms: int, normal_ms: int, depth: int, height: int) -> Waits:
    """Return the waiting times of one stage.

    Args:
        max_delay_ms: Maximum that a failure may add to the delay of new results, at the strictest
            output.
        normal_ms: How long a bucket takes without failures from the first sign of it: its width,
            the sources' out-of-orderness, and the hops that one input has behind it and another has
            not, at HOP_MS each (``InputLags`` measures them).
        depth: Stages before this one on the longest path to a source.
        height: Stages from this one to that output on the longest path, itself included.
    """
    first_ms = normal_ms + max(HOP_MS, max_delay_ms - SLACK_MS - height * HOP_MS)
    return Waits(first_ms, min(first_ms, normal_ms + HOP_MS * (1 + depth)))


def delay_bound_ms(height: int) -> int:
    """Return the smallest ``max_delay``, in ms, that a path of ``height`` stages can meet."""
    return SLACK_MS + (height + 1) * HOP_MS


TIMER_STEPS_MAX: Final = 8_192
"""Maximum number of timer steps before older ones are joined (AV8). While one input is missing,
each bucket of the others adds a step and none is read: 345 600 a day. After years a few thousand
joined steps remain, since they get sparser with age.
"""
TIMER_ERROR_PARTS: Final = 100
"""Divisor of the maximum error of a joined timer: it counts as started later than it did by at most
this fraction of its age. A wait that is this long may take a hundredth longer unnoticed.
"""


class BucketTimers:
    """Start times of the timers of buckets. Stored as steps, since whole ranges of buckets start
    together; old ones are stored with less precision (AV8).
    """

    def __init__(self) -> None:
        self._upto: list[int] = []
        """Last bucket of each step, ascending (AV2): the timers of the buckets up to ``_upto[i]``,
        and above the step before, count as started at ``_at[i]``.
        """
        self._at: list[int] = []
        self._highest = 0

    def observe(self, now_ms: int, past: int) -> None:
        """Start the timer of bucket ``past + 1``: an input is known to have passed ``past`` (AV1).
        0 means that nothing is known yet.
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
        """Remove the steps whose removal changes each timer by at most a fraction of its age. Their
        buckets then belong to the next step, which started later, so no wait ends early (AV1).
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
        """Return when the timer of ``bucket`` started; None if it has not. For a forgotten bucket
        the result may be later, never earlier.
        """
        step = bisect_left(self._upto, bucket)
        return self._at[step] if step < len(self._upto) else None

    def started_before(self, at_ms: int) -> int:
        """Return the last bucket whose timer started at ``at_ms`` or earlier; 0 if there is
        none.
        """
        step = bisect_right(self._at, at_ms) - 1
        return self._upto[step] if step >= 0 else 0

    def shift(self, by_ms: int) -> None:
        """Move the start of all running timers by ``by_ms``, which is not to count (AV4)."""
        self._at = [at + by_ms for at in self._at]

    def forget(self, upto: int) -> None:
        """Drop the timers of buckets up to ``upto``, which were read. Bounds memory. The newest
        step is kept: it shows which timers have started.
        """
        step = min(bisect_left(self._upto, upto + 1), len(self._upto) - 1)
        if step > 0:
            del self._upto[:step], self._at[:step]


class Availability:
    """Timers of one stage replica over all its inputs."""

    def __init__(
        self,
        inputs: Iterable[str],
        waits: Waits,
        policy: Policy,
        lags: InputLags | None = None,
        elsewhere: Collection[str] = (),
        before_ms: Mapping[str, int] | None = None,
    ) -> None:
        """Start without observations.

        Args:
            inputs: Names of the inputs.
            waits: Waiting times of the stage.
            policy: What it does once it has continued without input.
            lags: Lags of inputs of different depth; None if they have none.
            elsewhere: Inputs on other owners' clusters.
            before_ms: Long wait of the stage that makes an input, in ms, by input; without those
                whose wait is not known.
        """
        self._waits, self.policy = waits, policy
        self._lags = InputLags({}, 0) if lags is None else lags
        self._closed: dict[str, int] = {}
        self._timers = BucketTimers()
        self._before_ms = {} if before_ms is None else before_ms
        self._waited: dict[str, tuple[int, int]] = {}
        """Per input, the last bucket for which its stage has had its long wait, and the time from
        which that wait counts (AV11).
        """
        self._read_to: dict[str, int] = dict.fromkeys(inputs, -1)
        self.elsewhere = frozenset(elsewhere)
        if self.elsewhere >= self._read_to.keys():
            self._read_to[OWN] = -1
        self._silent: dict[str, int] = {}
        """Time of the latest request for its log's end that the cluster of an input elsewhere left
        unanswered.
        """
        self._question_ms: dict[str, int] = {}
        """Time of the last request to the cluster of an input elsewhere for the end of its log."""
        self._ends: dict[str, tuple[int, int]] = {}
        """Requested ends of logs that are being read up to them, each with the time of the
        request.
        """
        self._left: dict[str, int] = dict.fromkeys(self._read_to, -1)
        """Time at which the log of an input was last left unread."""
        self._looked_ms: int | None = None
        self._moved_ms = 0
        self.woke_ms = 0
        """Time of the first check after the last long pause of this process; 0 if it had none."""
        self._seen = 0

    def observe(self, now_ms: int, past: int, seen: int | None = None) -> None:
        """Update the timers from the state of the inputs, and exclude a pause of this
        process.

        Args:
            now_ms: Present time.
            past: Last bucket that the most advanced input has passed (``LogState.past_upto``).
            seen: Last bucket of which an input has anything, or which it has closed
                (``LogState.seen_upto``); None: ``past + 1``.
        """
        self._seen = max(self._seen, past + 1 if seen is None else seen)
        if self._looked_ms is not None and now_ms - self._looked_ms > STALL_MS:
            self._timers.shift(now_ms - self._looked_ms)
            for name, (upto, since_ms) in self._waited.items():
                self._waited[name] = upto, since_ms + now_ms - self._looked_ms
            self._moved_ms += now_ms - self._looked_ms
            self.woke_ms = now_ms
        self._looked_ms = now_ms
        self._timers.observe(now_ms, past)

    @property
    def stages_before(self) -> Collection[str]:
        """Names of the inputs that a stage makes whose long wait is known (AV11)."""
        return self._before_ms.keys()

    def has_waited(self, name: str, upto: int, now_ms: int) -> None:
        """Record that the stage that makes input ``name`` has had its long wait for the buckets up
        to ``upto`` (AV11). Repeated calls change nothing.
        """
        before, wait_ms = self._waited.get(name, (0, 0))[0], self._before_ms.get(name)
        if upto > before and wait_ms is not None:
            self._waited[name] = upto, now_ms - wait_ms

    @property
    def waits(self) -> Waits:
        """Current waiting times, adjusted by the measured lags of the inputs."""
        beyond_ms = self._lags.beyond_expected_ms
        if not beyond_ms:
            return self._waits
        first_ms = self._waits.first_ms + beyond_ms
        return Waits(first_ms, min(first_ms, self._waits.next_ms + max(0, beyond_ms)))

    def closed(self, name: str, upto: int, now_ms: int) -> None:
        """Record that input ``name`` is complete up to bucket ``upto``."""
        before, self._closed[name] = self._closed.get(name, 0), upto
        started = self._timers.started(before + 1) if 0 < before < upto else None
        if started is not None:
            self._lags.closed(name, now_ms - started)

    def look(self, name: str, now_ms: int, *, wanted: bool) -> RoundKind:
        """Return how to follow the log of input ``name``, for which there is room. After a pause a
        process reads first, then judges. ``wanted``: reading to the end may decide something
        (``look_wanted``).
        """
        end_wanted = self.end_wanted(name)
        if name in self.elsewhere:
            asks = self._asks_elsewhere(name, now_ms, wanted=wanted or end_wanted)
            return RoundKind.ASK_END if asks else RoundKind.READ_ON
        if wanted:
            return RoundKind.READ_TO_END
        question_ms, _ = self._ends.get(name, (-1, 0))
        asks = end_wanted and question_ms < self.look_due_ms(name)
        return RoundKind.ASK_END if asks else RoundKind.READ_ON

    def clusters_to_ask(
        self, name: str, look: RoundKind, *, is_opening: bool, own_wanted: bool
    ) -> list[str]:
        """Return the clusters to request a log's end from, in order, for this round of input
        ``name`` (AV7): the own cluster before that of the input. If one does not answer, the next
        is not asked: a process that has lost the own cluster must not judge others.

        Args:
            name: Name of the input.
            look: Result of ``look``.
            is_opening: Whether the log is still being opened: nothing is judged before.
            own_wanted: Whether an answer of the own cluster may decide something now.
        """
        ends = [name] if look is RoundKind.ASK_END else []
        if name not in self.elsewhere:
            return ends
        if is_opening:
            return []
        return [OWN, *ends] if own_wanted else ends

    def followed(self, last: Round, log_states: Mapping[str, LogState], now_ms: int) -> bool:
        """Apply the outcome of a round. Return whether it may make a plan possible.

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
        """Record ``end`` as the end of the log of input ``name``, requested at ``question_ms``. An
        earlier end stays in force until it is reached, if it is recent enough.
        """
        self._question_ms[name] = question_ms
        before_ms, _ = self._ends.get(name, (-1, 0))
        if before_ms < self.look_due_ms(name):
            self._ends[name] = question_ms, end

    def reached(self, name: str, offset: int) -> bool:
        """Record that the log of input ``name`` was read to ``offset``. Return whether that is the
        requested end.
        """
        question_ms, end = self._ends.get(name, (0, offset + 1))
        if offset < end:
            return False
        self.read_to_end(name, question_ms)
        return True

    def read_to_end(self, name: str, question_ms: int) -> None:
        """Record that the log of input ``name`` was read up to an end requested at
        ``question_ms``.
        """
        self._ends.pop(name, None)
        self._read_to[name] = max(self._read_to[name], question_ms)
        if question_ms >= self._silent.get(name, -1):
            self._silent.pop(name, None)

    def unanswered(self, name: str, question_ms: int, now_ms: int) -> None:
        """Record that the cluster of input ``name`` has not answered the request of ``question_ms``
        for the end of its log. Another owner's cluster is silent then (AV7); without the own one
        nothing is judged. If this process was paused meanwhile, the missing answer proves nothing.
        """
        if name not in self.elsewhere:
            return
        self._question_ms[name] = question_ms
        self._ends.pop(name, None)
        if now_ms - question_ms <= CLUSTER_ANSWER_MS + STALL_MS:
            self._silent[name] = question_ms

    def is_silent(self, name: str) -> bool:
        """Return whether input ``name`` is on a cluster that does not answer (AV7)."""
        return self._silent.get(name, -1) >= self.look_due_ms(name)

    def _asks_elsewhere(self, name: str, now_ms: int, *, wanted: bool) -> bool:
        """Return whether to request the end of the log of input ``name`` from another owner's
        cluster now. Requests are spaced while the cluster is silent, or while the log is being read
        up to an end.
        """
        silent, question_ms = self.is_silent(name), self._question_ms.get(name)
        waits = question_ms is not None and (silent or name in self._ends)
        if waits and question_ms is not None and now_ms - question_ms < CLUSTER_AGAIN_MS:
            return False
        return wanted or silent

    def left_unread(self, name: str, now_ms: int) -> None:
        """Record that there is no room for more of input ``name``: this process is blind then
        (AV4).
        """
        self._left[name] = now_ms

    def look_due_ms(self, name: str) -> int:
        """Return the time from which on a request for the log's end shows the current state of
        input ``name``: an answer to an older request may predate the last pause of this process, or
        the time at which it left the input unread.
        """
        return max(self.woke_ms, self._left[name] + 1)

    @property
    def sighted_ms(self) -> int:
        """Time since which a process that is not blind has known the state of all inputs, at the
        earliest.
        """
        return max(map(self.look_due_ms, self._read_to))

    def end_wanted(self, name: str) -> bool:
        """Return whether the log of input ``name`` must still be read to an end requested since
        this process woke, began, or left it unread. False while its cluster is silent.
        """
        return not self.is_silent(name) and self._read_to[name] < self.look_due_ms(name)

    def own_wanted(self) -> bool:
        """Return whether the own cluster needs a request of its own, and has not answered one since
        this process woke or began (AV7).
        """
        return OWN in self._read_to and self.end_wanted(OWN)

    def blind(self, now_ms: int) -> bool:
        """Return whether this process does not know the current state of its inputs (AV4): it has
        begun, or woken, or had no room, and has not read all logs since.
        """
        looked = self._looked_ms is not None and now_ms - self._looked_ms <= STALL_MS
        return not looked or any(map(self.end_wanted, self._read_to))

    def first_over(self, bucket: int) -> bool:
        """Return whether the long wait for ``bucket`` is over (AV3, AV11)."""
        since_ms = self._since_ms(bucket)
        return since_ms is not None and since_ms + self.waits.first_ms <= self._known_to()

    def overdue(self, bucket: int, now_ms: int) -> bool:
        """Return whether the deadline of the long wait for ``bucket`` has passed, even if the
        inputs were not read since.
        """
        started = self._started(bucket)
        return started is not None and started + self.waits.first_ms <= now_ms

    def left_ms(self, bucket: int, now_ms: int) -> int:
        """Return the time, in ms, until ``bucket``, of which the inputs have something, is late
        (AV9); negative if it is late already.
        """
        started = self._timers.started(bucket)
        return self.waits.first_ms - (0 if started is None else now_ms - started)

    def moved(self, now_ms: int) -> None:
        """Record that the stable query ran a batch."""
        self._moved_ms = now_ms

    def still(self) -> bool:
        """Return whether the stable query has not advanced for a whole long wait (rule 14), by the
        same conditions as for buckets (AV3, AV4).
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
        """Return whether reading the log of input ``name`` to its end now may show that a wait for
        ``bucket`` or a later one is over. Always false for an OWN that needs no request of its own.

        Args:
            name: Name of the input.
            bucket: Next bucket that the stage could process.
            now_ms: Present time.
            branching: Whether the branch asks: the short wait counts.
            again: Whether the stable query asks beside a running branch: its wait restarts with
                every batch.
            extended: Whether an input gets one hop more, as in ``due_upto``, for the branch.
        """
        started = self._started(bucket) if branching else self._since_ms(bucket)
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
        """Return the last bucket that a branch may process, even if its inputs lack it.

        Args:
            stable_upto: Last bucket that is complete on all inputs.
            tentative_upto: Last bucket that all inputs have, stable or tentative.
            extended: Whether an input that lacks the bucket reports that it works on tentative
                ones: it gets one hop more.
        """
        there = stable_upto if self.policy is Policy.DELAY else tentative_upto
        wait_ms = self._later_wait_ms(extended=extended)
        return max(
            there,
            min(self._seen, self._timers.started_before(self._known_to() - wait_ms)),
        )

    def forget(self, upto: int) -> None:
        """Drop the timers of buckets up to ``upto``, which every query has read."""
        self._timers.forget(upto)

    def _started(self, bucket: int) -> int | None:
        """Return when the timer of ``bucket`` started; None if it has not, or if no input has
        anything of the bucket (AV5).
        """
        return self._timers.started(bucket) if bucket <= self._seen else None

    def _since_ms(self, bucket: int) -> int | None:
        """Return the time from which the long wait for ``bucket`` counts (AV11); None if its timer
        has not started.
        """
        started = self._started(bucket)
        waited = [since_ms for upto, since_ms in self._waited.values() if bucket <= upto]
        return None if started is None else min([started, *waited])

    def _known_to(self) -> int:
        """Return the time up to which the state of all inputs is known, except of silent ones (AV3,
        AV7).
        """
        return min(
            question_ms for name, question_ms in self._read_to.items() if not self.is_silent(name)
        )

    def _decides(self, name: str, due_ms: int, now_ms: int) -> bool:
        """Return whether a check of input ``name`` may show that a wait is over at ``due_ms``. A
        request to another owner's cluster is sent early enough that its answer, or its timeout, is
        known at that time.
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
