"""A replica makes deleted blocks again, on a log in memory, with an engine of a few lines:
every row of the input is a row of the output.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import FailingOperation, LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec.catalog import topic_settings
from anabranch.codec.plan_offsets import INITIAL, kind_of, position_of, taken_of
from anabranch.codec.signed_records import Sign
from anabranch.pipeline.model import Binding, Stage
from anabranch.ports import Checkpoints, TopicPartition
from anabranch.processing.recompute_server import RecomputeServer, RecomputingReplica
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply
from anabranch.protocol.errors import AnabranchError, Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.recomputation import ASK_TAKEN_EVERY_MS
from anabranch.streams.block_reader import BlockReader
from anabranch.streams.block_writer import BlockWriter
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.range_query import RangeQuery
from harness import outputs, sources
from harness.control_topics import all_control_records
from harness.outputs import STAGE
from harness.regrowth import lose_and_grow
from harness.trimmed_log import trim_below_snapshot

INPUT = "means"
STATELESS = PlanTraits(is_stateful=False, is_batch_safe=True)
STATEFUL = PlanTraits(is_stateful=True, is_batch_safe=True)
LAST = 9


def rows(bucket: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array([bucket, -bucket], pa.int64()),
            "event_time": pa.array([bucket * 100] * 2, pa.int64()),
        }
    )


class Writer:
    """A replica of a stage that has written all its buckets, one a batch."""

    def __init__(self, world: World, stream: str, replica: str, sign: Sign | None = None) -> None:
        names, of = world.names, world.pipeline
        self.boundary = BoundaryWriter(
            world.log,
            names.boundaries(stream),
            of.stream_writers(stream),
            EpochStarted(replica, "plan", world.entropy.token()),
            world.clock,
            signing=None if sign is None else Signing(sign),
        )
        self.epoch = self.boundary.start()
        blocks = BlockWriter(
            world.log, names.blocks(stream, replica), replica, self.epoch, world.entropy
        )
        self.timeline = timeline_name(self.epoch, 0)
        for batch, bucket in enumerate(range(1, LAST + 1)):
            parts = blocks.write([(bucket % 2, bucket, rows(bucket))])
            ident = BatchId(self.timeline, batch)
            self.boundary.append(
                BoundaryRecord(replica, self.epoch, ident, self.boundary.tip(), bucket, parts)
            )
        blocks.close()


class Disk:
    """Disk of the replica: batch n has read, and closed, bucket n + 1."""

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.kept: tuple[int, ...] = ()
        self.whole_ones: set[int] | None = None
        self.directories: dict[str, int] = {}

    def newest(self) -> Timeline | None:
        return self.timeline

    def copy(self, source: str, target: str) -> None:
        assert self.timeline is not None
        assert source == self.timeline.name
        self.directories[target] = max(self.kept)

    def create(self, name: str) -> None:
        self.directories[name] = -1

    def remove(self, name: str) -> None:
        self.directories.pop(name, None)

    def batches(self, name: str) -> tuple[int, ...]:
        assert name in self.directories
        return self.kept

    def whole(self, name: str, batches: tuple[int, ...]) -> int | None:
        assert name in self.directories
        return next(
            (batch for batch in batches if self.whole_ones is None or batch in self.whole_ones),
            None,
        )

    def bucket(self, name: str, batch: int) -> int:
        assert name in self.directories
        return batch + 1

    def cut_back(self, name: str, batch: int, *, keep_plan: bool) -> None:
        assert not keep_plan
        self.directories[name] = batch


class World:
    """Two replicas of a stage whose blocks a test deletes, and the input that they were made
    from.
    """

    def __init__(
        self, traits: PlanTraits, keys: Sequence[str] = (), sign: Sign | None = None
    ) -> None:
        """``keys``: the input is another owner's, who signs with one of these; ``sign``: how the
        records that are there are signed.
        """
        self.clock, self.entropy = VirtualClock(), SeededEntropy(1)
        self.log = LocalEventLog(self.clock)
        of = outputs.pipeline("p", replicas=2)
        stages = {
            INPUT: Stage(name=INPUT, participant="north", reads=[], transform=["m:f"], replicas=1),
            STAGE: of.stages[STAGE].model_copy(update={"reads": [INPUT]}),
        }
        bound = Binding(
            name=INPUT,
            pipeline="p",
            stream=INPUT,
            record=next(iter(sources.pipeline("p").sources.values())).record,
            keys=list(keys),
        )
        self.pipeline = of.model_copy(
            update={"stages": stages, "bindings": {INPUT: bound} if keys else {}}
        )
        self.names = self.pipeline.topic_names
        outputs.create_topics(self.log, self.pipeline)
        self.log.admin().create(
            [
                topic_settings("boundaries", self.names.boundaries(INPUT)),
                topic_settings("blocks", self.names.blocks(INPUT, "0"), 2),
            ]
        )
        self.context = outputs.context(
            self.log, self.pipeline, self.clock, self.entropy, "processing", f"{STAGE}.0"
        )
        self.input = Writer(self, INPUT, "0", sign)
        self.first = Writer(self, STAGE, "0")
        self.second = Writer(self, STAGE, "1")
        self.disk, self.traits = Disk(), traits
        self.begun: list[int] = []
        """The batch after which the engine's query began."""
        self.change: Callable[[pa.Table], pa.Table] = lambda table: table
        self.stop_after = 100

    def made(self, replica: str = "0") -> RecomputingReplica:
        writer = self.first if replica == "0" else self.second
        return RecomputingReplica(
            STAGE,
            replica,
            self.traits,
            "plan",
            writer.epoch,
            cast("Checkpoints", self.disk),
            writer.boundary,
            threading.Lock(),
            partial(self.run, replica),
        )

    def run(self, replica: str, query: RangeQuery) -> None:
        """Emit what the query reads; batch n of a stateful query ended at bucket n + 1."""
        begin = self.disk.directories[query.name]
        self.begun.append(begin)
        start: dict[str, Any] = dict(INITIAL) | (
            {} if begin < 0 else {"sequence": begin, "bucket": begin + 1}
        )
        reader = BlockReader(
            self.log, lambda replica: self.names.blocks(INPUT, replica), self.clock
        )
        epoch = (self.first if replica == "0" else self.second).epoch
        blocks = BlockWriter(
            self.log, self.names.blocks(STAGE, replica), replica, epoch, self.entropy
        )
        for batch in range(self.stop_after):
            if (found := query.advance(query.name, INPUT, start)) is None:
                break
            assert query.advance(query.name, INPUT, start) == found, "asked again it is the same"
            offset = json.loads(json.dumps(found))
            begun = query.begin(query.name, [offset], 100 * offset["bucket"], position_of(start))
            assert begun.kind is kind_of(offset) is BoundaryKind.STABLE
            given = reader.read_buckets(taken_of(offset))
            parts = blocks.write(
                [
                    (bucket % 2, bucket, self.change(table))
                    for bucket, table in given
                    if bucket in query.only
                ]
            )
            assert query.finish(query.name, batch, parts)
            start = offset
        blocks.close()
        reader.close()

    def delete(self, stream: str, replica: str, first_kept: int) -> None:
        """All blocks of buckets before ``first_kept``."""
        reader = BoundaryReader(
            self.log, self.names.boundaries(stream), self.pipeline.stream_writers(stream)
        )
        reader.read_to_end()
        below: dict[TopicPartition, int] = {}
        for bucket in range(1, first_kept):
            for part in reader.log_state.replica_bucket(replica, bucket) or ():
                below[TopicPartition(self.names.blocks(stream, replica), part.partition)] = (
                    part.offset_next
                )
        reader.close()
        self.log.admin().delete_before(below)

    def trim_below_snapshot(self, stream: str, forgotten: int) -> None:
        """Trim the boundary log below a log snapshot."""
        for writer in (self.input, self.first, self.second):
            writer.boundary.poll()
        trim_below_snapshot(
            self.log, self.names.boundaries(stream), self.pipeline.stream_writers(stream), forgotten
        )

    def ask(self, first: int = 1, last: int = 20, number: int = 1) -> Ask:
        return Ask(STAGE, "delivery.out", number, first, last, 0)

    def answers(self) -> list[AskReply]:
        return [
            entry
            for entry in all_control_records(self.log, self.pipeline)
            if isinstance(entry, AskReply)
        ]

    def requests(self) -> list[tuple[str, str, int, int]]:
        """Return what replicas have requested of their inputs."""
        return [
            (entry.stream, entry.reader, entry.bucket_first, entry.bucket_last)
            for entry in all_control_records(self.log, self.pipeline)
            if isinstance(entry, Ask)
        ]

    def settle(self, recomputing: RecomputeServer) -> list[tuple[AskOutcome, str]]:
        """Work off what was asked."""
        recomputing.step(may_begin=True)
        while recomputing.busy:
            recomputing.step(may_begin=True)
        recomputing.close()
        return [(answer.outcome, answer.reason) for answer in self.answers()]

    def readable(self, first: int, last: int) -> list[int]:
        """Return the stable buckets that can be read entirely."""
        following = BoundaryReader(
            self.log, self.names.boundaries(STAGE), self.pipeline.stream_writers(STAGE)
        )
        following.read_to_end()
        blocks = BlockReader(
            self.log, lambda replica: self.names.blocks(STAGE, replica), self.clock
        )
        found = []
        for wanted in following.log_state.stable(first, last):
            try:
                ((bucket, table),) = blocks.read_buckets([wanted])
            except AnabranchError:
                continue
            assert table.sort_by("n").equals(rows(bucket).sort_by("n"))
            found.append(bucket)
        blocks.close()
        following.close()
        return found


@pytest.fixture
def world() -> World:
    return World(STATELESS)


@pytest.fixture
def stateful() -> World:
    made = World(STATEFUL)
    made.disk.timeline = Timeline(made.first.timeline, -1, None, floor=-1)
    made.disk.kept = tuple(range(LAST - 1, 1, -1))
    return made


def with_request(world: World, ask: Ask | None = None, replica: str = "0") -> RecomputeServer:
    recomputing = RecomputeServer(world.context, world.made(replica))
    recomputing.receive(world.ask() if ask is None else ask)
    return recomputing


def test_a_stateless_stage_makes_what_is_gone_again_and_nothing_else(world: World) -> None:
    world.delete(STAGE, "0", 5)
    assert world.readable(1, LAST) == [5, 6, 7, 8, 9]
    world.delete(INPUT, "0", 3)
    world.delete(STAGE, "0", 5)
    assert world.settle(with_request(world, world.ask(3))) == [
        (AskOutcome.TAKEN, ""),
        (AskOutcome.RECOMPUTED, ""),
    ]
    assert world.readable(1, LAST) == [3, 4, 5, 6, 7, 8, 9]
    assert world.begun == [-1]
    assert world.disk.directories == {}


def test_blocks_at_whose_offsets_other_blocks_are_by_now_are_made_again(world: World) -> None:
    """The partition that lost them has grown past them."""
    lose_and_grow(world.log, TopicPartition(world.names.blocks(STAGE, "0"), 1))
    assert world.readable(1, LAST) == [2, 4, 6, 8]
    assert world.settle(with_request(world, world.ask(3))) == [
        (AskOutcome.TAKEN, ""),
        (AskOutcome.RECOMPUTED, ""),
    ]
    assert world.readable(1, LAST) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_an_own_version_at_whose_offsets_other_blocks_are_is_not_named(world: World) -> None:
    for replica in "01":
        lose_and_grow(world.log, TopicPartition(world.names.blocks(STAGE, replica), 1))
    recomputing = with_request(world, replica="1")
    world.clock.sleep_ms(3_000)
    assert world.settle(recomputing)[-1] == (AskOutcome.RECOMPUTED, "")
    assert world.readable(1, LAST) == [*range(1, LAST + 1)]
    assert world.begun == [-1], "nothing was left to name again"


def test_own_blocks_that_it_may_not_read_are_made_again_as_the_request_says(world: World) -> None:
    """On a broker with ACLs it need not have the right to read what it writes."""
    own = world.names.blocks(STAGE, "0")
    world.log.fail_next(FailingOperation.FETCH, error=Unavailable, topic=own)
    assert world.settle(with_request(world, world.ask(3, 4)))[-1] == (AskOutcome.RECOMPUTED, "")
    assert world.begun == [-1]
    assert world.readable(1, LAST) == [*range(1, LAST + 1)]


def test_while_it_works_it_says_so_again(world: World) -> None:
    work = Mock(is_alive=lambda: True)
    threads = Mock(begin=lambda _name, _work: work)
    recomputing = RecomputeServer(replace(world.context, threads=threads), world.made())
    recomputing.receive(world.ask())
    for _ in range(4 * ASK_TAKEN_EVERY_MS // 1_000):
        recomputing.step(may_begin=True)
        world.clock.sleep_ms(1_000)
    assert [answer.outcome for answer in world.answers()] == [AskOutcome.TAKEN] * 4
    recomputing.close()


def test_nothing_is_made_when_nothing_is_gone(world: World) -> None:
    assert world.settle(with_request(world))[-1] == (
        AskOutcome.RECOMPUTED,
        "no blocks of the range are missing",
    )
    assert world.settle(with_request(world, world.ask(50, 60)))[-1] == (
        AskOutcome.RECOMPUTED,
        "no blocks of the range are missing",
    )
    assert world.begun == []


def test_a_second_reader_finds_it_there(world: World) -> None:
    world.delete(STAGE, "0", 5)
    recomputing = with_request(world)
    recomputing.receive(replace(world.ask(), reader="processing.next.0"))
    world.settle(recomputing)
    assert world.settle(recomputing)[-1] == (
        AskOutcome.RECOMPUTED,
        "no blocks of the range are missing",
    )
    assert world.begun == [-1]


def test_a_replica_names_what_it_still_has(world: World) -> None:
    """Bucket by bucket: of the others its own blocks are gone too."""
    world.delete(STAGE, "0", 8)
    world.delete(STAGE, "1", 4)
    recomputing = with_request(world, replica="1")
    world.clock.sleep_ms(3_000)
    assert world.settle(recomputing)[-1] == (AskOutcome.RECOMPUTED, "")
    assert world.readable(1, LAST) == list(range(1, 10))
    assert world.begun == [-1]


@pytest.mark.parametrize("is_signed", [True, False])
def test_of_another_owner_only_what_is_signed_is_used(is_signed: bool) -> None:
    key = SigningKey("owner", "1", b"k" * 32)
    world = World(STATELESS, [key.public.hex()], key.sign_message if is_signed else None)
    world.delete(STAGE, "0", 5)
    assert world.settle(with_request(world))[-1] == (
        (AskOutcome.RECOMPUTED, "")
        if is_signed
        else (AskOutcome.UNABLE, f"{INPUT} is not known up to bucket 4")
    )
    assert world.readable(1, LAST) == list(range(1 if is_signed else 5, LAST + 1))


def test_other_rows_are_never_used(world: World) -> None:
    world.delete(STAGE, "0", 5)
    world.change = lambda table: table.slice(0, 1)
    outcome, reason = world.settle(with_request(world))[-1]
    assert (outcome, reason) == (
        AskOutcome.DIFFERENT,
        "bucket 1 has other rows now, so nothing of the range is used",
    )
    assert world.readable(1, LAST) == [5, 6, 7, 8, 9]
    assert world.begun == [-1, -1], "once more from the beginning"


@pytest.mark.parametrize("first_kept", [1, 3])
def test_rows_of_a_stateless_stage_may_come_from_before_what_is_gone(
    world: World, first_kept: int
) -> None:
    """Its own query has skipped them. Where they are gone from the input, too, nothing is used."""
    world.delete(STAGE, "0", 5)
    world.delete(INPUT, "0", first_kept)

    def change(table: pa.Table) -> pa.Table:
        return table if len(world.begun) > 1 else table.slice(0, 1)

    world.change = change
    outcome, _ = world.settle(with_request(world, world.ask(3)))[-1]
    is_made = first_kept == 1
    assert outcome is (AskOutcome.RECOMPUTED if is_made else AskOutcome.UNABLE)
    assert world.requests() == ([] if is_made else [(INPUT, f"processing.{STAGE}.0", 1, 4)])
    assert world.readable(3, LAST) == list(range(3 if is_made else 5, LAST + 1))
    assert world.disk.directories == {}


def test_input_that_is_gone_is_reported_and_requested(world: World) -> None:
    """One disk may have had the blocks of the stage and of its input."""
    world.delete(STAGE, "0", 5)
    world.delete(INPUT, "0", 3)
    outcome, reason = world.settle(with_request(world))[-1]
    assert outcome is AskOutcome.UNABLE
    assert reason.endswith("the blocks of means from bucket 1 on are deleted")
    assert world.readable(1, LAST) == [5, 6, 7, 8, 9]
    assert world.requests() == [(INPUT, f"processing.{STAGE}.0", 1, 4)]


def test_so_is_input_at_whose_offsets_other_blocks_are_by_now(world: World) -> None:
    """Bounds of partitions do not show it, and the query fails."""
    world.delete(STAGE, "0", 6)
    lose_and_grow(world.log, TopicPartition(world.names.blocks(INPUT, "0"), 1))
    outcome, reason = world.settle(with_request(world, world.ask(2)))[-1]
    assert outcome is AskOutcome.UNABLE
    assert reason.endswith("the blocks of means from bucket 3 on are deleted")
    assert world.requests() == [(INPUT, f"processing.{STAGE}.0", 3, 5)]


def test_another_pipelines_blocks_are_not_requested() -> None:
    key = SigningKey("owner", "1", b"k" * 32)
    world = World(STATELESS, [key.public.hex()], key.sign_message)
    world.pipeline.stages.pop(INPUT)
    world.delete(STAGE, "0", 5)
    world.delete(INPUT, "0", 3)
    assert world.settle(with_request(world))[-1][0] is AskOutcome.UNABLE
    assert world.requests() == []


def test_a_stateful_stage_goes_back_to_a_checkpoint(stateful: World) -> None:
    stateful.delete(STAGE, "0", 8)
    stateful.delete(INPUT, "0", 6)
    assert stateful.settle(with_request(stateful, stateful.ask(7)))[-1] == (
        AskOutcome.RECOMPUTED,
        "",
    )
    assert stateful.begun == [5], (
        "the newest batch that had closed, and begun, nothing of the range"
    )
    assert stateful.readable(1, LAST) == [7, 8, 9]


def test_a_checkpoint_that_is_damaged_is_gone_back_over(stateful: World) -> None:
    stateful.disk.whole_ones = {2, 3, 7}
    stateful.delete(STAGE, "0", 8)
    assert stateful.settle(with_request(stateful, stateful.ask(7)))[-1] == (
        AskOutcome.RECOMPUTED,
        "",
    )
    assert stateful.begun == [3]


@pytest.mark.parametrize("has_disk", [True, False])
def test_without_a_checkpoint_that_is_old_enough_it_begins_at_the_beginning(
    stateful: World, has_disk: bool
) -> None:
    if not has_disk:
        stateful.disk.timeline = None
    stateful.delete(STAGE, "0", 8)
    assert stateful.settle(with_request(stateful))[-1] == (AskOutcome.RECOMPUTED, "")
    assert stateful.begun == [-1]
    assert stateful.readable(1, LAST) == list(range(1, 10))


def test_a_query_that_does_not_come_to_its_end_is_given_up(stateful: World) -> None:
    stateful.stop_after = 0
    stateful.delete(STAGE, "0", 8)
    outcome, reason = stateful.settle(with_request(stateful))[-1]
    assert (outcome, reason) == (
        AskOutcome.UNABLE,
        "recomputing buckets 1..7 took too long, or was stopped",
    )
    assert stateful.disk.directories == {}


def test_a_query_that_dies_does_not_take_the_replica_with_it(world: World) -> None:
    world.delete(STAGE, "0", 5)

    def change(_: pa.Table) -> pa.Table:
        raise ValueError("the user's function")

    world.change = change
    assert world.settle(with_request(world))[-1] == (
        AskOutcome.UNABLE,
        "ValueError: the user's function",
    )


def test_a_process_that_is_fenced_says_nothing(world: World) -> None:
    world.delete(STAGE, "0", 5)
    recomputing = with_request(world)
    Writer(world, STAGE, "0")
    assert world.settle(recomputing) == [(AskOutcome.TAKEN, "")]


def test_of_buckets_that_are_not_described_any_more_nothing_can_be_made(world: World) -> None:
    world.delete(STAGE, "0", 5)
    world.trim_below_snapshot(STAGE, 2)
    reason = "buckets of totals up to 2 are trimmed, and its log no longer describes them"
    assert world.settle(with_request(world, world.ask(2)))[-1] == (AskOutcome.UNABLE, reason)
    assert world.settle(with_request(world, world.ask(3, number=2)))[-1] == (
        AskOutcome.RECOMPUTED,
        "",
    )
    assert world.begun == [-1]


def test_of_input_that_is_not_described_any_more_nothing_can_be_made(world: World) -> None:
    world.delete(STAGE, "0", 5)
    world.trim_below_snapshot(INPUT, 3)
    outcome, reason = world.settle(with_request(world))[-1]
    assert outcome is AskOutcome.UNABLE
    assert (
        reason
        == "no checkpoint is older than the range, and the log of means describes its buckets up to"
        " 3 no more"
    )


def test_it_is_made_again_over_logs_with_snapshots(stateful: World) -> None:
    for stream in (STAGE, INPUT):
        stateful.trim_below_snapshot(stream, 0)
    stateful.delete(STAGE, "0", 8)
    assert stateful.settle(with_request(stateful))[-1] == (AskOutcome.RECOMPUTED, "")
    assert stateful.readable(1, LAST) == list(range(1, 10))


def test_a_replica_with_a_branch_begins_nothing(world: World) -> None:
    world.delete(STAGE, "0", 5)
    recomputing = with_request(world)
    recomputing.step(may_begin=False)
    assert not recomputing.busy
    assert world.begun == []
    recomputing.close()


def test_where_a_peer_cannot_be_looked_at_the_ask_is_believed(world: World) -> None:
    """A replica's principal may write its own blocks, and may not read a peer's."""
    world.log.topics.pop(world.names.blocks(STAGE, "0"))
    recomputing = with_request(world, replica="1")
    world.clock.sleep_ms(3_000)
    assert world.settle(recomputing)[-1] == (AskOutcome.RECOMPUTED, "")
    assert world.begun == [], "all of it is there in its own version"


def test_own_blocks_that_cannot_be_looked_at_are_no_answer(world: World) -> None:
    world.log.topics.pop(world.names.blocks(STAGE, "0"))
    assert world.settle(with_request(world))[-1][0] is AskOutcome.UNABLE
