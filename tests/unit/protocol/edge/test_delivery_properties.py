"""Delivery against a topic whose transactions end in any way: every id once (DE2), in order
where nothing was torn (DE3), also where the number of shards changes meanwhile (OH3 to OH5).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.partitions import partition_of
from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.delivery import REJECTED, CorrectedDelivery, Form
from anabranch.protocol.edge.output_handover import EndedShards, end, inherited, inherits
from anabranch.protocol.edge.shards import Shard
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
    """An output topic and the progress topics of its shards; ``None`` stands for a control record
    or one of another producer.
    """

    partitions: list[list[RecordId | None]]
    """Ids in the topic's partitions, then in one of rejected results for each shard."""
    count: int
    """Number of the topic's own partitions."""
    progress: dict[tuple[int, int], list[DeliveryProgress]] = field(default_factory=dict)
    """Progress records by number and shard."""
    beginnings: dict[int, DeliveryProgress] = field(default_factory=dict)
    """Beginning of all shards, by number of shards."""
    ended: list[EndedShards] = field(default_factory=list)
    upto: int = 0
    """Last bucket that was stable for some process: others see it when they begin."""
    torn: bool = False

    def apply(
        self,
        batch: list[tuple[int, RecordId]],
        place: tuple[int, int],
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
            self.progress.setdefault(place, []).append(record)

    def last(self, place: tuple[int, int]) -> DeliveryProgress | None:
        """Return the newest progress of a shard."""
        return self.progress[place][-1] if self.progress.get(place) else None

    def end(self, shards: int, heirs: int) -> None:
        """End the shards of the current number."""
        number = len(self.ended)
        ends = (end("out", self.last((number, index)), heirs, 0) for index in range(shards))
        self.ended.append(EndedShards(tuple(ends), self.beginnings.get(number)))


def fail_over(topic: Topic, upto: int, shard: Shard) -> CorrectedDelivery:
    count, number = topic.count, len(topic.ended)
    places = [*range(count), count + shard.index]
    progress = topic.last((number, shard.index))
    starts = [0] * len(places)
    ends = [len(topic.partitions[p]) for p in places]
    machine = CorrectedDelivery("out", progress, starts, ends, shard=shard)
    if inherits(progress):
        before = inherited("out", shard, count, topic.ended, progress)
        if before is not None:
            machine.inherit(before, starts)
    rejected = topic.partitions[count:]
    rejected_from = machine.rejected_from([0] * len(rejected), [len(each) for each in rejected])
    read_from = [*machine.read_from[:-1], *rejected_from]
    for records, start in zip(topic.partitions, read_from, strict=True):
        for ident in records[start:]:
            if ident is not None:
                machine.found(ident)
    machine.recovered(upto)
    if run := machine.beginning():
        topic.beginnings[number] = machine.progress(run, 0)
        topic.progress.setdefault((number, shard.index), []).append(machine.progress(run, 0))
    return machine


@dataclass
class Process:
    """One shard of an output: ``machine``, and what is stable for it so far."""

    topic: Topic
    shard: Shard
    sizes: dict[int, int]
    rejected: set[RecordId]
    outcomes: list[str]
    rng: random.Random

    def __post_init__(self) -> None:
        self.last = max(self.sizes, default=1)
        self.upto = self.rng.randint(self.topic.upto, self.last)
        self.topic.upto = self.upto
        self.partitions = self.topic.count
        self.number = len(self.topic.ended)
        self.machine = fail_over(self.topic, self.upto, self.shard)

    def fail_over(self) -> None:
        self.machine = fail_over(self.topic, self.upto, self.shard)

    def place(self, ident: RecordId) -> int:
        key = None if ident.position % 4 == 3 else b"%d" % (ident.position % 3)
        return partition_of(key, ident, self.partitions)

    def step(self) -> bool:
        """One transaction, or less; whether there is more to do."""
        machine, rng = self.machine, self.rng
        stable = [(b, n) for b, n in sorted(self.sizes.items())]
        stable = [(b, n) for b, n in stable if machine.cursor.bucket <= b <= self.upto]
        run = machine.plan(self.upto, stable, rng.randint(1, 6))
        if run is None:
            if self.upto == self.last:
                return False
            self.upto = rng.randint(self.upto + 1, self.last)
            self.topic.upto = max(self.topic.upto, self.upto)
            return True
        assert all((s.start, s.stop) == (0, self.sizes[s.bucket]) for s in run.slices[1:]), "DE6"
        ids = [RecordId(s.bucket, i) for s in run.slices for i in range(s.start, s.stop)]
        placed = [(p, i) for i in ids if self.shard.has(p := self.place(i))]
        batch = [(p, i) for p, i in placed if not (machine.comparing and machine.there(i, p))]
        if not ids or (machine.comparing and not batch):
            machine.advance(run, None)
            return True
        if machine.form is Form.RECORDS and any(i in self.rejected for _, i in batch):
            sizes = {ids.index(i): 100 if i in self.rejected else 1 for _, i in batch}
            assert machine.rejected(run, sizes)
            return True
        if machine.form is not Form.RECORDS and batch:
            assert [i in self.rejected for _, i in batch] == [True], "nothing else is rejected"
            batch = [(self.partitions + self.shard.index, i) for _, i in batch]
        outcome = self.outcomes.pop(0) if self.outcomes else "committed"
        place = self.number, self.shard.index
        self.topic.apply(batch, place, machine.progress(run, 0), outcome, rng)
        if outcome != "committed":
            self.fail_over()
            return True
        # reports name the records; the end of the transaction has a place of its own
        ends = {
            REJECTED if p >= self.partitions else p: len(self.topic.partitions[p]) - 1
            for p, _ in batch
        }
        machine.advance(run, ends)
        if rng.random() < 0.1:
            self.fail_over()
        return True


def deliver(
    seed: int,
    sizes: dict[int, int],
    partitions: int,
    outcomes: list[str],
    large: float = 0.0,
    numbers: Sequence[int] = (1,),
) -> Topic:
    """Deliver everything, with these outcomes first and good ones afterwards. So many results
    are larger than the topic takes: ``large``. ``numbers``: of shards, one after the other.
    """
    rng = random.Random(seed)
    topic = Topic(
        [[None] * rng.randint(0, 2) for _ in range(partitions + max(numbers))], partitions
    )
    rejected = {RecordId(b, i) for b, n in sizes.items() for i in range(n) if rng.random() < large}
    for number, shards in enumerate(numbers):
        is_last = number == len(numbers) - 1
        waiting = list(range(shards))
        processes: list[Process] = []
        for _ in range(2_000 if is_last else rng.randint(0, 12)):
            if waiting and (len(waiting) == shards or rng.random() < 0.4):
                shard = Shard(waiting.pop(0), shards)
                own = list(outcomes[shard.index :: shards])
                processes.append(Process(topic, shard, sizes, rejected, own, rng))
            elif processes:
                one = rng.choice(processes)
                if not one.step():
                    processes.remove(one)
            elif not waiting:
                break
        else:
            assert not is_last, "no progress"
        if not is_last:
            topic.end(shards, numbers[number + 1])
    return topic


@examples(400)
@given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 4),
    outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=8),
    sizes=st.dictionaries(st.integers(1, 30), st.integers(1, 9), max_size=8),
    large=st.sampled_from([0.0, 0.1, 1.0]),
    numbers=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_every_id_once_whatever_becomes_of_transactions(
    seed: int,
    partitions: int,
    outcomes: list[str],
    sizes: dict[int, int],
    large: float,
    numbers: list[int],
) -> None:
    """With shards, each fails by itself, at any place between the transactions of the others, and
    another number comes at any time.
    """
    numbers = [min(each, partitions) for each in numbers]
    topic = deliver(seed, sizes, partitions, outcomes, large, numbers)
    found = [ident for p in topic.partitions for ident in p if ident is not None]
    assert sorted(found) == [RecordId(b, i) for b in sorted(sizes) for i in range(sizes[b])]
    if not topic.torn:
        for p in topic.partitions[:partitions]:
            ids = [ident for ident in p if ident is not None]
            assert ids == sorted(ids)


def test_a_dead_letter_of_a_torn_first_transaction_is_found_by_its_heir() -> None:
    """The only shard leaves a result in its partition of the rejected ones, and no progress of it;
    one of three shards has the partition that the result belongs to.
    """
    sizes = {1: 1, 2: 3, 3: 1, 4: 1, 5: 1, 6: 1, 7: 3, 8: 9}
    topic = deliver(1, sizes, 3, ["torn without progress"], 1.0, [1, 3])
    rejected = [ident for p in topic.partitions[3:] for ident in p if ident is not None]
    assert sorted(rejected) == [RecordId(b, i) for b in sorted(sizes) for i in range(sizes[b])]
    assert rejected[0] == RecordId(1, 0), "it is still where the only shard left it"
