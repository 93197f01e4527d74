"""Delivery against a topic whose transactions end in any way: every id once (DE2), in order
where nothing was torn (DE3).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.partitions import partition_of
from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.delivery import REJECTED, CorrectedDelivery, Form
from anabranch.protocol.identifiers import RecordId
from harness.examples import examples

OUTCOMES = (
    "committed",
    "applied, unknown",
    "lost, unknown",
    "torn",
    "torn without progress",
    "killed before commit",
)


@dataclass
class Topic:
    """An output topic and its progress topic; ``None`` stands for a control record or one of
    another producer.
    """

    partitions: list[list[RecordId | None]]
    progress: list[DeliveryProgress] = field(default_factory=list)
    torn: bool = False

    def apply(
        self,
        batch: list[tuple[int, RecordId]],
        record: DeliveryProgress,
        outcome: str,
        rng: random.Random,
    ) -> None:
        if outcome in ("lost, unknown", "killed before commit"):
            kept: set[int] = set()
        elif outcome.startswith("torn"):
            kept = {p for p in range(len(self.partitions)) if rng.random() < 0.5}
            self.torn = True
        else:
            kept = set(range(len(self.partitions)))
        for p, ident in batch:
            self.partitions[p].append(ident if p in kept else None)
        for p in {p for p, _ in batch}:
            self.partitions[p].append(None)
        if outcome in ("committed", "applied, unknown", "torn"):
            self.progress.append(record)


def fail_over(topic: Topic, upto: int) -> CorrectedDelivery:
    count = len(topic.partitions)  # the last one is that of rejected results
    machine = CorrectedDelivery(
        "out",
        topic.progress[-1] if topic.progress else None,
        [0] * count,
        [len(p) for p in topic.partitions],
    )
    for p, start in enumerate(machine.read_from):
        for ident in topic.partitions[p][start:]:
            if ident is not None:
                machine.found(ident)
    machine.recovered(upto)
    return machine


def deliver(
    seed: int, sizes: dict[int, int], partitions: int, outcomes: list[str], large: float = 0.0
) -> Topic:
    """Deliver everything, with these outcomes first and good ones afterwards. So many results
    are larger than the topic takes: ``large``.
    """
    rng = random.Random(seed)
    last = max(sizes, default=1)
    topic = Topic([[None] * rng.randint(0, 2) for _ in range(partitions + 1)])
    rejected = {RecordId(b, i) for b, n in sizes.items() for i in range(n) if rng.random() < large}
    upto, todo = rng.randint(0, last), list(outcomes)
    machine = fail_over(topic, upto)
    for _ in range(1_000):
        stable = [(b, n) for b, n in sorted(sizes.items()) if machine.cursor.bucket <= b <= upto]
        run = machine.plan(upto, stable, rng.randint(1, 6))
        if run is None:
            if upto == last:
                return topic
            upto = rng.randint(upto + 1, last)
            continue
        ids = [RecordId(s.bucket, i) for s in run.slices for i in range(s.start, s.stop)]
        placed = [
            (
                partition_of(
                    None if i.position % 4 == 3 else b"%d" % (i.position % 3), i, partitions
                ),
                i,
            )
            for i in ids
        ]
        batch = [(p, i) for p, i in placed if not (machine.comparing and machine.there(i, p))]
        if not batch:
            machine.advance(run, {})
            continue
        if machine.form is Form.RECORDS and any(i in rejected for _, i in batch):
            assert machine.rejected(
                run, {ids.index(i): 100 if i in rejected else 1 for _, i in batch}
            )
            continue
        if machine.form is not Form.RECORDS:
            assert [i in rejected for _, i in batch] == [True], "nothing else is rejected"
            batch = [(partitions, i) for _, i in batch]
        outcome = todo.pop(0) if todo else "committed"
        topic.apply(batch, machine.progress(run, 0), outcome, rng)
        if outcome == "committed":
            # reports name the records; the end of the transaction takes a place of its own
            machine.advance(
                run,
                {
                    REJECTED if p == partitions else p: len(topic.partitions[p]) - 1
                    for p, _ in batch
                },
            )
            if rng.random() < 0.1:
                machine = fail_over(topic, upto)
        else:
            machine = fail_over(topic, upto)
    pytest.fail("no progress")


@examples(400)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 4),
    outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=8),
    sizes=st.dictionaries(st.integers(1, 30), st.integers(1, 9), max_size=8),
    large=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_every_id_once_whatever_becomes_of_transactions(
    seed: int, partitions: int, outcomes: list[str], sizes: dict[int, int], large: float
) -> None:
    topic = deliver(seed, sizes, partitions, outcomes, large)
    found = [ident for p in topic.partitions for ident in p if ident is not None]
    assert sorted(found) == [RecordId(b, i) for b in sorted(sizes) for i in range(sizes[b])]
    if not topic.torn:
        for p in topic.partitions:
            ids = [ident for ident in p if ident is not None]
            assert ids == sorted(ids)
