"""The live topic under any sequence of stable, tentative and branch events, crashes and unknown
outcomes, seen by a strict reader.

``Strict`` holds the topic to the rules (the checks of a client that trusts nothing); ``LiveView``,
which gets the partitions at different times, must show what the topic said at the end of a
transaction.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec import live_records
from anabranch.protocol.edge import live_delivery as module
from anabranch.protocol.edge.live_delivery import (
    Available,
    Kind,
    LiveDelivery,
    LiveProgress,
    LiveRun,
)
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.edge.views import (
    KeyState,
    LiveRecord,
    LiveView,
    UpsertView,
    Version,
    ViewRecord,
)
from anabranch.protocol.identifiers import RecordId
from harness.examples import examples

EVENTS = (
    "stable",
    "stable",
    "tentative",
    "tentative",
    "branch",
    "crash",
    "lost",
    "applied",
    "corrects",
    "settles",
)
WIDTH_MS = 100


@dataclass
class Log:
    """Content of a boundary log: stable buckets, and what branches closed beyond them."""

    sizes: dict[int, int]
    upto: int = 0
    branch: int = 1
    tentative: dict[int, int] = field(default_factory=dict)
    """Bucket -> branch that closed it last."""
    settled: bool = True

    def stable_to(self, upto: int) -> None:
        self.upto = max(self.upto, upto)
        self.tentative = {b: n for b, n in self.tentative.items() if b > self.upto}

    def tentative_to(self, upto: int) -> None:
        self.tentative.update(dict.fromkeys(range(self.upto + 1, upto + 1), self.branch))

    def rows(self, bucket: int, branch: int) -> int:
        """Return the number of rows of a tentative bucket: branches lack different inputs."""
        return max(0, self.sizes.get(bucket, 0) - (bucket + branch) % 3)

    def available(self, now: LiveProgress) -> Available:
        floor, last = max(self.upto, now.stable), max(self.tentative, default=0)
        stable = [(b, n) for b, n in sorted(self.sizes.items()) if now.stable < b <= self.upto]
        filled = [(b, n) for b in sorted(self.tentative) if (n := self.rows(b, self.tentative[b]))]
        new = [(b, n) for b, n in filled if b > max(floor, now.shown)]
        return Available(
            self.upto,
            stable,
            last,
            new,
            [(b, n) for b, n in reversed(filled) if floor < b <= now.shown],
            self.settled,
        )


def key_of(ident: RecordId) -> bytes:
    return b"k%d" % ((ident.bucket * 7 + ident.position) % 5)


class Strict:
    """A reader that checks what every transaction may hold."""

    def __init__(self) -> None:
        self.stable: dict[RecordId, bytes | None] = {}
        self.tentative: dict[RecordId, bytes | None] = {}
        self.upto = 0
        self.last = RecordId(0, 0)
        self.failure = False
        self.undone = False
        self.ended_failure = False

    def take(self, record: LiveRecord) -> None:
        kind, ident = record.kind, record.id
        if kind is Kind.INSERTION:
            assert ident is not None
            assert ident > self.last, "in order, once"
            assert ident.bucket > self.upto
            assert self.undone or not self.failure, "a correction without undo"
            self.last = ident
            self.stable[ident] = record.value
        elif kind is Kind.TENTATIVE:
            assert ident is not None
            assert ident.bucket > self.last.bucket
            assert ident not in self.tentative
            assert not self.ended_failure, "tentative after rec_done in one transaction"
            self.tentative[ident] = record.value
            self.failure = True
        elif kind is Kind.UNDO:
            assert self.failure, "undo without failure"
            assert not self.undone, "one undo per failure"
            assert ident == (self.last if self.last.bucket else None), (
                "it names the last stable record"
            )
            self.undone = True
            self.tentative.clear()
        elif kind is Kind.REC_DONE:
            self._void(record.stable)
            assert self.failure or self.tentative == {}
            assert not self.tentative, "something tentative is left at rec_done"
            self.failure = self.undone = False
            self.ended_failure = True
        else:
            self._void(record.stable)
            assert record.stable >= self.upto
            assert not self.tentative or record.shown
            # a failure of which only empty buckets were shown has no record that says so
            self.failure = record.shown > 0
            self.upto, self.ended_failure = record.stable, False

    def _void(self, upto: int) -> None:
        self.tentative = {
            ident: value for ident, value in self.tentative.items() if ident.bucket > upto
        }

    def shown_buckets(self) -> set[int]:
        return {ident.bucket for ident in [*self.stable, *self.tentative]}


ORIGIN = Origin("p", "out", "x")


class Topic:
    """Transactions, each a list of (partition, record)."""

    def __init__(self, partitions: int, log: Log) -> None:
        self.partitions, self.log = partitions, log
        self.transactions: list[list[tuple[int, LiveRecord]]] = []
        self.progress = LiveProgress("out", partitions, 0, 0)
        self.upsert, self.view = dict[bytes, KeyState](), UpsertView("out")

    def records(self, run: LiveRun) -> Iterator[tuple[int, LiveRecord]]:
        def control(kind: Kind, progress: LiveProgress) -> Iterator[tuple[int, LiveRecord]]:
            value, headers = live_records.control(kind, progress, WIDTH_MS, ORIGIN)
            return ((p, live_records.decode(headers, None, value)) for p in range(self.partitions))

        if run.undo:
            yield from control(Kind.UNDO, run.before)
        for key, version in [
            *self.versions(run.stable, stable=True),
            *self.versions((*run.again, *run.tentative), stable=False),
        ]:
            kind = Kind.INSERTION if version.branch is None else Kind.TENTATIVE
            record = LiveRecord(
                kind,
                version.id,
                version.branch,
                (),
                version.event_time_ms,
                key,
                version.value,
                origin=str(ORIGIN),
            )
            yield key[-1] % self.partitions, record
        if run.rec_done:
            yield from control(Kind.REC_DONE, run.after)
        yield from control(Kind.BOUNDARY, run.after)

    def versions(self, buckets: tuple[int, ...], *, stable: bool) -> list[tuple[bytes, Version]]:
        found = []
        for bucket in buckets:
            branch = 0 if stable else self.log.tentative[bucket]
            for position in range(
                self.log.sizes[bucket] if stable else self.log.rows(bucket, branch)
            ):
                ident, text = RecordId(bucket, position), f"{bucket}.{position}/{branch}".encode()
                found.append(
                    (
                        key_of(ident),
                        Version(ident, bucket * WIDTH_MS, text, None if stable else (1, branch)),
                    )
                )
        return found

    def writes(self, run: LiveRun) -> list[ViewRecord]:
        tentative = self.versions((*run.again, *run.tentative), stable=False)
        return self.view.transaction(
            undo=run.undo,
            insertions=self.versions(run.stable, stable=True),
            stable_upto=run.after.stable,
            tentative=tentative,
        )

    def apply(self, run: LiveRun) -> None:
        self.transactions.append(list(self.records(run)))
        self.progress = run.after
        writes = self.writes(run)
        assert len({w.key for w in writes}) == len(writes)
        self.upsert.update({w.key: w.state for w in writes})
        self.view.apply(writes)

    def failed_over(self) -> LiveDelivery:
        self.view = UpsertView("out")
        for key, state in self.upsert.items():
            self.view.restore(key, state)
        return LiveDelivery(self.progress)


def deliver(seed: int, sizes: dict[int, int], events: list[str], partitions: int) -> Topic:
    """Play ``events``, then everything becomes stable and is delivered."""
    rng = random.Random(seed)
    last = max(sizes, default=1)
    log = Log(sizes)
    topic = Topic(partitions, log)
    machine = topic.failed_over()
    spoilt: list[str] = []
    for event in [*events, "heal"]:
        if event == "stable":
            log.stable_to(min(last, log.upto + rng.randint(0, 3)))
        elif event == "tentative":
            log.tentative_to(min(last, max([log.upto, *log.tentative]) + rng.randint(0, 3)))
        elif event == "branch":
            log.branch += 1
            log.tentative_to(min(last, log.upto + rng.randint(0, 4)))
        elif event == "heal":
            log.stable_to(last)
            log.settled = True
        elif event in ("corrects", "settles"):
            log.settled = event == "settles"
        elif event == "crash":
            machine = topic.failed_over()
        else:
            spoilt.append(event)
        for _ in range(1_000 if event == "heal" else rng.randint(0, 3)):
            run = machine.plan(log.available(machine.progress))
            if run is None:
                break
            outcome = spoilt.pop() if spoilt else "committed"
            if outcome != "lost":
                topic.apply(run)
            if outcome == "committed":
                machine.advance(run)
            else:
                machine = topic.failed_over()
    return topic


SIZES = st.dictionaries(st.integers(1, 14), st.integers(1, 4), max_size=12)
SEQUENCES = st.lists(st.sampled_from(EVENTS), max_size=30)


@pytest.fixture(scope="module", autouse=True)
def small_transactions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LIVE_ROWS_MAX", 5)
        patch.setattr(module, "DELIVERY_BUCKETS_MAX", 3)
        yield


@examples(500)
@given(seed=st.integers(0, 2**32), sizes=SIZES, events=SEQUENCES, partitions=st.integers(1, 3))
def test_what_a_strict_reader_sees(
    seed: int, sizes: dict[int, int], events: list[str], partitions: int
) -> None:
    topic = deliver(seed, sizes, events, partitions)
    reader = Strict()
    for transaction in topic.transactions:
        shown = reader.shown_buckets()
        undos = [record for p, record in transaction if p == 0 and record.kind is Kind.UNDO]
        seen = set()
        for _, record in transaction:
            # what stands in every partition once is one record of the topic
            if record.kind in (Kind.INSERTION, Kind.TENTATIVE) or record not in seen:
                reader.take(record)
            seen.add(record)
        assert len(undos) <= 1
        correctable = {b for b in shown if b > reader.upto and topic.log.sizes.get(b, 0) > 3}
        assert correctable <= reader.shown_buckets(), "the live answer fell back"
    wanted = {RecordId(b, i): f"{b}.{i}/0".encode() for b, n in sizes.items() for i in range(n)}
    assert reader.stable == wanted
    assert not reader.tentative
    assert not reader.failure


@examples(300)
@given(seed=st.integers(0, 2**32), sizes=SIZES, events=SEQUENCES, partitions=st.integers(1, 3))
def test_a_view_shows_only_ends_of_transactions(
    seed: int, sizes: dict[int, int], events: list[str], partitions: int
) -> None:
    topic = deliver(seed, sizes, events, partitions)
    whole, answers = LiveView(partitions), dict[int, object]()
    for transaction in topic.transactions:
        for p, record in transaction:
            whole.take(p, record)
        answers[whole.sequence] = ({(r.id, r.branch) for r in whole.records()}, whole.in_failure)
    rng = random.Random(seed)
    queues = [
        [r for transaction in topic.transactions for q, r in transaction if q == p]
        for p in range(partitions)
    ]
    view = LiveView(partitions)
    while any(queues):
        place = rng.choice([p for p in range(partitions) if queues[p]])
        if view.take(place, queues[place].pop(0)):
            assert ({(r.id, r.branch) for r in view.records()}, view.in_failure) == answers[
                view.sequence
            ]
    assert view.sequence == len(topic.transactions)
    assert {r.key: r.value for r in view.by_key().values()} == {
        key_of(i): f"{i}/0".encode()
        for i in sorted(RecordId(b, p) for b, n in sizes.items() for p in range(n))
    }


@examples(300)
@given(seed=st.integers(0, 2**32), sizes=SIZES, events=SEQUENCES, partitions=st.integers(1, 3))
def test_what_is_read_again_changes_nothing(
    seed: int, sizes: dict[int, int], events: list[str], partitions: int
) -> None:
    """A consumer that stands at an earlier record after a rebalance, any one, sees what one
    sees that reads on.
    """
    topic = deliver(seed, sizes, events, partitions)
    queues = [
        [r for transaction in topic.transactions for q, r in transaction if q == p]
        for p in range(partitions)
    ]
    rng = random.Random(seed)
    once, again = LiveView(partitions), LiveView(partitions)
    at = [0] * partitions

    def answer(view: LiveView) -> object:
        return (
            list(view.records()),
            view.by_key(),
            view.sequence,
            view.in_failure,
            view.failures,
            view.undone,
            view.gaps,
        )

    while any(at[p] < len(queue) for p, queue in enumerate(queues)):
        place = rng.choice([p for p, queue in enumerate(queues) if at[p] < len(queue)])
        changed = once.take(place, queues[place][at[place]])
        assert again.take(place, queues[place][at[place]]) == changed
        at[place] += 1
        if rng.random() < 0.2:
            for record in queues[place][rng.randint(0, at[place]) : at[place]]:
                assert not again.take(place, record)
        assert answer(again) == answer(once)


@examples(300)
@given(seed=st.integers(0, 2**32), sizes=SIZES, events=SEQUENCES)
def test_the_compacted_view_is_the_answer_by_key(
    seed: int, sizes: dict[int, int], events: list[str]
) -> None:
    topic = deliver(seed, sizes, events, 1)
    view = LiveView(1)
    for transaction in topic.transactions:
        for p, record in transaction:
            view.take(p, record)
    compacted = {
        key: state.visible.value for key, state in topic.upsert.items() if state.visible is not None
    }
    assert compacted == {key: record.value for key, record in view.by_key().items()}


def test_the_compacted_view_is_the_answer_by_key_after_every_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same in the middle of failures: the seeds show that most of what can happen did."""
    kinds: set[Kind] = set()
    real = Topic.apply

    def apply(self: Topic, run: LiveRun) -> None:
        kinds.update(write.kind for write in self.writes(run))
        real(self, run)
        view = LiveView(1)
        for transaction in self.transactions:
            for p, record in transaction:
                view.take(p, record)
        compacted = {
            key: state.visible.value
            for key, state in self.upsert.items()
            if state.visible is not None
        }
        assert compacted == {key: record.value for key, record in view.by_key().items()}

    monkeypatch.setattr(Topic, "apply", apply)
    for seed in range(150):
        rng = random.Random(seed)
        sizes = {rng.randint(1, 14): rng.randint(1, 4) for _ in range(10)}
        deliver(seed, sizes, [rng.choice(EVENTS) for _ in range(25)], 1)
    assert kinds == {Kind.INSERTION, Kind.TENTATIVE, Kind.UNDO}
