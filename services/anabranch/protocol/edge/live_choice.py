"""Selection of the tentative buckets for the live topic: from which replica, and when.

Theory of operation. Tentative buckets come from one replica as long as it is as good as any
(``protocol.stage.upstream_selection``). A bucket that was shown, and that an undo voids, is shown
again from the same replica, else from any that has it: which one it was does not matter any more.

A replica that is done makes stable buckets while a peer's branch still makes tentative ones of the
same input, often a moment earlier, which no reader needs. So while a peer says STABLE the delivery
delays a tentative bucket (``Hold``), but not for long: what a replica says of itself decides about
this much time, never about a record.

How long depends on how much of its delay the bucket has used. What a branch closes first has had
the stage's whole first wait, so little is left: ``LIVE_HOLD_MS``. It takes later buckets after the
short wait; for those the difference between the waits is left, and while the topic stands outside a
failure the delay may be that long: a branch that began so late that its failure is over begins no
other one. If the input is missing again, the stable peer forks after its own first wait, which is
no later.

An output may be more patient than its stage, which waits as the strictest of the outputs behind it
demands. What the stage then offers too early for this output is delayed by the difference, bucket
by bucket, so a failure that ends before the output's own wait leaves no trace in its live topic:
its stable buckets come first. Once a failure is shown, the policy of the stage counts as it does
there: with ``process`` later buckets are shown at once, with ``delay`` each has the whole wait.

Invariants:
    LC1 what is offered is above every stable bucket, delivered or known, and above what was shown.
    LC2 a bucket that could not be read is offered no more, of that branch.
    LC3 outside a failure only what a branch that runs has made is offered: what is left of one that
        has ended begins no other failure.
    LH1 nothing is delayed while no peer says STABLE, except for the patience of the output (LH4).
    LH2 a bucket is delayed for at most ``LIVE_HOLD_MS`` from when it could first be shown; one that
        its branch closed later than with its first record, outside a failure, for at most what the
        stage's later wait is shorter than its first one, if that is more. The patience is added.
    LH3 so a later bucket is not shown later than a first one.
    LH4 a bucket that begins a failure, and with the policy ``delay`` any tentative bucket, is shown
        no earlier than the output's own wait after the bucket's timer, and no later for its
        patience.
    LH5 what was offered when this process began has an unknown age and no patience: a bound that is
        kept counts more than a tentative result that is avoided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.edge.live_delivery import Available, Failure, LiveProgress, branching
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import DELIVERY_BUCKETS_MAX
from anabranch.protocol.log.boundary_log import LogState, TentativeBucket
from anabranch.protocol.log.records import BranchNumber, Part
from anabranch.protocol.stage import upstream_selection
from anabranch.protocol.stage.availability import BucketTimers, Policy, Waits

LIVE_HOLD_MS: Final = 200
"""Maximum delay of a tentative bucket that has had the long wait, in ms, while a peer of its
replica reports STABLE: the stable bucket is then about to arrive. Part of SLACK_MS.
"""

UNREADABLE_BUCKETS_MAX: Final = 1_000
"""Tentative buckets that could not be read and are not tried again: a replica whose blocks
are lost must not make delivery grow.
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Tentative buckets of a replica that could be shown."""

    replica: str
    first: int
    last: int
    first_closed: int
    """Bucket that the replica's newest branch closed with its first record."""


class Hold:
    """State of one output. ``now_ms`` is monotonic."""

    def __init__(self, waits: Waits, policy: Policy, own_ms: int | None = None) -> None:
        """Begin with the ``waits`` and ``policy`` of the stage that makes the output, and with the
        output's ``own_ms`` wait from the start of a bucket's timer; None: as long as the stage's.
        """
        self._policy = policy
        self._saved_ms = waits.first_ms - waits.next_ms if policy is Policy.PROCESS else 0
        self._patience_ms = 0 if own_ms is None else max(0, own_ms - waits.first_ms)
        self._offered = BucketTimers()
        """The timer of bucket n started when bucket n - 1 could first be shown."""
        self._aged_upto: int | None = None
        """Last bucket that was offered when this process began; None: it has not looked yet."""

    def begin(self, upto: int) -> None:
        """Record that buckets up to ``upto`` are offered now. Only the first call counts (LH5)."""
        if self._aged_upto is None:
            self._aged_upto = upto

    def left_ms(
        self, offer: Candidate, states: Mapping[str, ReplicaState], now_ms: int, *, failing: bool
    ) -> int:
        """Return how long to delay the offered buckets, in ms; 0 if they may be shown now.

        Args:
            offer: Buckets that could be shown.
            states: State that each replica reports.
            now_ms: Present time.
            failing: Whether a failure is shown already: more tentative buckets begin none.

        Raises:
            LocalProtocolError: nothing is offered.
        """
        self._offered.observe(now_ms, offer.last)
        self._offered.forget(offer.first)
        since_ms = self._offered.started(offer.first + 1)
        if since_ms is None:
            message = (
                f"buckets {offer.first}..{offer.last} of {offer.replica} have no timer: they are"
                " not offered"
            )
            raise LocalProtocolError(message)
        saved_ms = self._saved_ms if offer.first > offer.first_closed and not failing else 0
        is_patient = self._patience_ms > 0 and offer.first > (self._aged_upto or 0)
        hold_ms = 0
        if is_patient and not (failing and self._policy is Policy.PROCESS):
            hold_ms = self._patience_ms + saved_ms
        if any(
            state is ReplicaState.STABLE
            for replica, state in states.items()
            if replica != offer.replica
        ):
            hold_ms += LIVE_HOLD_MS if hold_ms else max(LIVE_HOLD_MS, saved_ms)
        return max(0, since_ms + hold_ms - now_ms)


class LiveChoice:
    """State of one output. ``now_ms`` is monotonic."""

    def __init__(self, waits: Waits, policy: Policy, own_ms: int | None = None) -> None:
        """Begin with the ``waits`` and ``policy`` of the stage that makes the output, and with the
        output's own wait, as ``Hold`` does.
        """
        self._chosen: str | None = None
        self._hold = Hold(waits, policy, own_ms)
        self._unreadable: dict[tuple[str, int, BranchNumber], None] = {}
        self.hold_ms = 0
        """Time until the delayed bucket is shown, in ms; 0 if none is delayed."""

    def available(
        self,
        now: LiveProgress,
        log_state: LogState,
        states: Mapping[str, ReplicaState],
        silent: Collection[str],
        now_ms: int,
    ) -> Available:
        """Return what the boundary log has beyond ``now``.

        Args:
            now: Progress of the live topic.
            log_state: State of the delivered stream's log, as far as it was read.
            states: State that each replica reports.
            silent: Replicas that count as dead.
            now_ms: Present time.
        """
        first = max(log_state.upto, now.stable, now.shown) + 1
        running, is_failing = branching(log_state, silent), now.failure is not Failure.NONE
        of = log_state.writers if is_failing else running
        upto = self._choose(first, of, log_state, states, now_ms, failing=is_failing)
        return Available(
            log_state.upto,
            _stable_sizes(log_state, now.stable),
            upto,
            self._new_sizes(log_state, first, upto),
            self._shown_sizes(log_state, max(log_state.upto, now.stable) + 1, now.shown),
            not running,
            now_ms,
        )

    def new(self, log_state: LogState, bucket: int) -> TentativeBucket | None:
        """Return a bucket that is shown for the first time; None if it cannot be read."""
        return None if self._chosen is None else self._readable(log_state, self._chosen, bucket)

    def again(self, log_state: LogState, bucket: int) -> TentativeBucket | None:
        """Return a shown bucket, from the replica of today, else from any; None if none has
        it.
        """
        order = sorted(log_state.writers, key=lambda replica: replica != self._chosen)
        found = (self._readable(log_state, replica, bucket) for replica in order)
        return next((each for each in found if each is not None), None)

    def cannot_be_read(self, replica: str, bucket: int, branch: BranchNumber) -> None:
        """Exclude a bucket that could not be read from later offers (LC2). Only the newest
        UNREADABLE_BUCKETS_MAX are remembered.
        """
        self._unreadable[replica, bucket, branch] = None
        for oldest in list(self._unreadable)[:-UNREADABLE_BUCKETS_MAX]:
            del self._unreadable[oldest]

    def _choose(
        self,
        first: int,
        of: Collection[str],
        log_state: LogState,
        states: Mapping[str, ReplicaState],
        now_ms: int,
        *,
        failing: bool,
    ) -> int:
        """Choose one of these replicas, if one has tentative bucket ``first``. Returns up to where
        its buckets may be shown now (LC1); 0: none may.
        """
        self.hold_ms = 0
        offers = log_state.tentative_offers(first - 1)
        offers = {replica: upto for replica, upto in offers.items() if replica in of}
        self._hold.begin(max(offers.values(), default=0))
        chosen = upstream_selection.choose(self._chosen, states, offers, first)
        if chosen is None:
            return 0
        upto = offers[chosen]
        offer = Candidate(chosen, first, upto, log_state.first_tentative_upto(chosen))
        self.hold_ms = self._hold.left_ms(offer, states, now_ms, failing=failing)
        if self.hold_ms:
            return 0
        self._chosen = chosen
        return upto

    def _new_sizes(self, log_state: LogState, first: int, last: int) -> Iterator[tuple[int, int]]:
        while first <= last and self._chosen is not None:
            page = log_state.tentative_filled(self._chosen, first, last, DELIVERY_BUCKETS_MAX)
            found = (self.new(log_state, bucket) for bucket in page)
            yield from ((each.bucket, _rows(each.parts)) for each in found if each is not None)
            first = page[-1] + 1 if len(page) == DELIVERY_BUCKETS_MAX else last + 1

    def _shown_sizes(self, log_state: LogState, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the sizes of what is shown and not stable, the newest first. For an undo only."""
        filled = {
            bucket
            for replica in log_state.writers
            for bucket in log_state.tentative_filled(replica, first, last)
        }
        for bucket in sorted(filled, reverse=True):
            found = self.again(log_state, bucket)
            if found is not None and found.parts:
                yield bucket, _rows(found.parts)

    def _readable(self, log_state: LogState, replica: str, bucket: int) -> TentativeBucket | None:
        found = log_state.tentative(replica, bucket)
        if found is None or (replica, bucket, found.branch) in self._unreadable:
            return None
        return found


def _stable_sizes(log_state: LogState, after: int) -> Iterator[tuple[int, int]]:
    while after < log_state.upto:
        page = log_state.stable(after + 1, log_state.upto, DELIVERY_BUCKETS_MAX)
        yield from ((bucket, _rows(parts)) for bucket, _, parts in page)
        after = page[-1][0] if len(page) == DELIVERY_BUCKETS_MAX else log_state.upto


def _rows(parts: tuple[Part, ...]) -> int:
    return sum(part.rows for part in parts)
