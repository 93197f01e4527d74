"""The delivery service on a log in memory whose transactions end as the test says."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.codec import blocks
from anabranch.codec.blocks import schema_text
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.partitions import partition_of
from anabranch.delivery import rejected as rejected_module
from anabranch.delivery import service as module
from anabranch.delivery.service import DeliveryService
from anabranch.pipeline.model import Federation
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.edge.delivery_failures import FAILOVER_RETRY_MS
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import DEAD_LETTER_CUT_BYTES
from anabranch.protocol.log.records import GivenUp
from harness import output_world, outputs
from harness.control_topics import all_control_records
from harness.output_world import DeliveringWorld
from harness.outputs import Replica, delivered, drain, rows
from harness.regrowth import lose_and_grow
from harness.sources import everything
from harness.trimmed_log import trim_below_snapshot


class World(output_world.World):
    """One output that one process delivers."""

    def __init__(self, partitions: int = 2, **facts: object) -> None:
        super().__init__(1, partitions, **facts)


@pytest.fixture
def world() -> World:
    return World()


def test_stable_buckets_become_records_in_canonical_order(world: World) -> None:
    world.feed(9, {2: 30, 5: 8})
    service = world.service()
    drain(service, 9)
    world.check()
    by_id = {
        ident: (partition, key, value)
        for partition, ident, key, value in delivered(world.log, world.pipeline)
    }
    for bucket, count in world.sizes.items():
        table = rows(bucket, count).sort_by(
            [(name, "ascending") for name in ("event_time", "car", "road", "total", "mean")]
        )
        expected = [
            {k: v for k, v in row.items() if k != "event_time"} for row in table.to_pylist()
        ]
        got = [by_id[RecordId(bucket, position)] for position in range(count)]
        assert [json.loads(value or b"") for _, _, value in got] == expected
        for position, (partition, key, _) in enumerate(got):
            assert json.loads(key or b"") == {"car": expected[position]["car"]}
            assert partition == partition_of(key, RecordId(bucket, position), 2)
    assert service.status.last_bucket_ms == 900
    assert service.status.lag_ms == world.clock.now_ms() - 900


def test_records_name_what_was_given_up(world: World) -> None:
    given_up = (GivenUp("cars", 4, 6), GivenUp("reports", 5, 5))
    world.replica.close_buckets(
        9, {3: rows(3, 2), 5: rows(5, 3), 6: rows(6, 1), 7: rows(7, 1)}, given_up
    )
    drain(world.service(), 9)
    found: dict[int, set[bytes | None]] = {}
    for chunk in everything(world.log, "p.out", 2):
        for headers in map(dict, chunk.headers):
            bucket = RecordId.parse((headers["anabranch-id"] or b"").decode()).bucket
            found.setdefault(bucket, set()).add(headers.get("anabranch-missing"))
    assert found == {3: {None}, 5: {b"cars,reports"}, 6: {b"cars"}, 7: {None}}


def test_several_buckets_go_in_one_transaction(world: World) -> None:
    for upto in range(1, 21):
        world.feed(upto, {upto: 3})
    drain(world.service(), 20)
    world.check()
    assert [
        (p.first_bucket, p.last_bucket) for p in outputs.progress(world.log, world.pipeline)
    ] == [(1, 0), (1, 20)], "where it begins, and one run"


def test_a_large_bucket_goes_in_several_transactions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "rows_bound", lambda _: 10)
    world.feed(5, {2: 4, 3: 35, 4: 3})
    service = world.service()
    service.step()
    service.step()
    service.step()
    service.stop()
    drain(world.service(), 5)
    world.check()
    assert len(outputs.progress(world.log, world.pipeline)) >= 5


def test_a_restart_goes_on(world: World) -> None:
    world.feed(3, {1: 5, 3: 5})
    first = world.service()
    drain(first, 3)
    first.stop()
    first.stop()
    world.feed(6, {6: 4})
    drain(world.service(), 6)
    world.check()


def changed(table: pa.Table) -> pa.Table:
    """Return ``table`` as another function computes it: a column less, one more, one of another
    type.
    """
    return (
        table.drop_columns(["mean"])
        .set_column(2, "total", table.column("total").cast(pa.string()))
        .append_column("new", table.column("car"))
    )


def values(world: World) -> dict[RecordId, dict[str, object]]:
    return {
        ident: json.loads(value or b"")
        for _, ident, _, value in delivered(world.log, world.pipeline)
    }


@pytest.mark.parametrize("rows_max", [100, 3])
def test_columns_that_change_change_in_the_output(
    world: World, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """In one run, and in the bucket that was open when the stage's function changed."""
    monkeypatch.setattr(module, "rows_bound", lambda _: rows_max)
    both = rows(2, 6)
    world.replica.close_buckets(1, {1: rows(1, 2), 2: both.slice(0, 3)})
    world.replica.close_buckets(3, {2: changed(both.slice(3)), 3: changed(rows(3, 2))})
    world.sizes = {1: 2, 2: 6, 3: 2}
    service = world.service()
    service.step()
    service.stop()
    drain(world.service(), 3)
    world.check()
    found = values(world)
    is_new = [
        found[RecordId(*at)].keys() == {"car", "road", "total", "new"}
        for at in ((1, 0), (2, 0), (2, 2), (2, 3), (2, 5), (3, 1))
    ]
    assert is_new == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]  # by time: what the new function made of bucket 2 is older
    assert (found[RecordId(2, 0)]["total"], found[RecordId(2, 5)]["total"]) == (
        "2000000",
        2_000_005,
    )


@pytest.mark.parametrize(
    "operation", [FailingOperation.FLUSH, FailingOperation.COMMIT, FailingOperation.BEGIN]
)
@pytest.mark.parametrize("applied", [None, 0])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_unknown_outcomes_are_settled_by_reading_back(
    world: World, operation: FailingOperation, applied: int | None, at: int
) -> None:
    service = world.service()
    for upto in range(1, 5):
        if upto == at:
            world.feed(upto, {upto: 6})
            world.log.fail_next(
                operation,
                applied=applied,
                topic="p.out" if operation is FailingOperation.FLUSH else None,
            )
        else:
            world.feed(upto, {upto: 6})
        drain(service, upto)
    world.check()
    assert service._counters.unknown._value.get() == 1


def test_outcomes_that_stay_unknown_end_the_process(world: World) -> None:
    world.feed(1, {1: 6})
    service = world.service()
    for _ in range(20):
        world.log.fail_next(FailingOperation.COMMIT, applied=0)
    with pytest.raises(OutcomeUnknown):
        drain(service, 1)
    assert service._counters.unknown._value.get() == 10


def test_foreign_records_do_not_disturb(world: World) -> None:
    world.log.admin().create([TopicSettings("p.out", 2)])
    writer = world.log.writer()
    at = TopicPartition("p.out", 0)
    for header in (
        [],
        [("anabranch-id", b"9999.0")],
        [("anabranch-id", b"rubbish")],
        [("other", b"1.0")],
    ):
        writer.send(at, b"x", headers=header)
    writer.flush()
    world.feed(2, {1: 6})
    service = world.service()
    drain(service, 2)
    assert service.status.detail["foreign_records"] == 4
    world.log.trim(TopicPartition("p.out", 0), 4)
    world.check()


def test_it_waits_behind_the_transaction_of_another_producer(world: World) -> None:
    world.feed(1, {1: 6})
    first = world.service()
    drain(first, 1)
    other = world.log.transactional_writer("other")
    other.begin()
    other.send(TopicPartition("p.out", 0), b"open")
    other.flush()
    world.feed(2, {2: 6})
    drain(first, 2)
    first.stop()
    second = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
    rounds = 0

    def waiting(text: str | None) -> None:
        nonlocal rounds
        if text is None:
            return
        rounds += 1
        if rounds == 3:
            other.abort()

    second._wait_for = waiting  # type: ignore[method-assign]
    second.start()
    assert rounds == 3
    world.feed(3, {3: 1})
    drain(second, 3)
    world.check()


def test_a_stop_ends_that_wait(world: World) -> None:
    world.log.admin().create([TopicSettings("p.out", 2)])
    other = world.log.transactional_writer("other")
    other.begin()
    other.send(TopicPartition("p.out", 0), b"open")
    other.flush()
    service = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
    service._context.stopping.set()
    service.start()
    assert service._delivery is None
    service.stop()


def test_it_retries_to_fail_over(world: World) -> None:
    world.feed(1, {1: 6})
    world.log.admin().create([TopicSettings("p.out", 2)])
    service = world.service()
    service._close_writer()
    world.log.fail_next(FailingOperation.OFFSETS, error=Unavailable, topic="p.out")
    service.step()
    assert service.status.state == "waiting"
    assert "planned failure" in (service.status.waiting_for or "")
    drain(service, 1)
    assert service.status.state == "running"
    world.check()


def test_a_failover_that_fails_does_not_hold_up_the_live_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = DeliveringWorld()
    service = world._delivery
    service._close_writer()
    tries_ms, live_ms = list[int](), list[int]()

    def fails() -> None:
        tries_ms.append(world.clock.monotonic_ms())
        raise Unavailable("earlier shards have not ended")

    def writes() -> bool:
        live_ms.append(world.clock.monotonic_ms())
        return True

    monkeypatch.setattr(service, "_fail_over", fails)
    monkeypatch.setattr(service._live, "step", writes)
    for _ in range(60):
        service.step()
        world.clock.advance(10)
    assert {after - before for before, after in pairwise(live_ms)} == {10}
    assert {after - before for before, after in pairwise(tries_ms)} == {FAILOVER_RETRY_MS}


def test_a_topic_may_get_partitions_before_it_has_results(world: World) -> None:
    world.service().stop()
    world.log.admin().grow("p.out", 3)
    world.feed(9, {2: 30})
    drain(world.service(), 9)
    assert len(delivered(world.log, world.pipeline)) == 30


def test_partitions_are_pinned(world: World) -> None:
    world.feed(1, {1: 6})
    drain(world.service(), 1)
    settings, partitions = world.log.topics["p.out"]
    world.log.topics["p.out"] = (settings, [*partitions, *partitions[:1]])
    with pytest.raises(ConfigurationError, match="has 3 partitions, delivery began with 2"):
        world.service()


def test_topics_that_cannot_be_right_are_rejected() -> None:
    world = World(sink_partitions=3)
    world.log.admin().create([TopicSettings("p.out", 2)])
    with pytest.raises(ConfigurationError, match="has 2 partitions, but the pipeline file says 3"):
        world.service()
    world = World()
    world.log.admin().create(
        [TopicSettings("p.out", 2, config={"cleanup.policy": "compact,delete"})]
    )
    with pytest.raises(ConfigurationError, match="must not be compacted"):
        world.service()
    world = World()
    rejected = world.pipeline.outputs["out"].rejected
    world.log.admin().create([TopicSettings(rejected, 1, config={"cleanup.policy": "compact"})])
    with pytest.raises(ConfigurationError, match=f"topic {rejected} has cleanup.policy=compact"):
        world.service()
    made = outputs.context(
        world.log, world.pipeline, world.clock, world.entropy, "delivery", "none"
    )
    with pytest.raises(ConfigurationError, match="no such output; it has out"):
        module.build(made.settings, made)


def test_blocks_that_are_gone_come_from_a_peer() -> None:
    world = World(replicas=2)
    peer = Replica(world.log, world.pipeline, world.clock, world.entropy, "1")
    world.feed(2, {1: 6, 2: 6})
    peer.close_buckets(2, {1: rows(1, 6), 2: rows(2, 6)})
    at = TopicPartition("p.totals.blocks.0", 0)
    world.log.trim(at, 1)
    drain(world.service(), 2)
    world.check()


def begun(world: World) -> DeliveryService:
    """Bucket 1 is delivered: from then on nothing is left out."""
    world.feed(1, {1: 2})
    service = world.service()
    drain(service, 1)
    return service


def test_a_peer_that_made_other_rows_is_not_asked() -> None:
    """Neither other rows nor more of them than were planned: it waits for those that count."""
    world = World(replicas=2)
    peer = Replica(world.log, world.pipeline, world.clock, world.entropy, "1")
    service = begun(world)
    world.feed(4, {2: 6, 3: 6, 4: 2})
    peer.close_buckets(4, {2: rows(2, 7), 3: rows(3, 6).slice(1), 4: rows(4, 2)})
    for partition in (0, 1):
        at = TopicPartition("p.totals.blocks.0", partition)
        world.log.trim(at, world.log.reader().offsets(at)[1])
    for _ in range(3):
        service.step()
    assert service.status.state == "waiting"
    assert len(delivered(world.log, world.pipeline)) == 2
    world.replica.append_recomputed({2: rows(2, 6), 3: rows(3, 6)})
    drain(service, 4)
    world.check()


def test_blocks_that_nobody_has_are_asked_for_and_waited_for() -> None:
    world = World(replicas=2)
    service = begun(world)
    world.feed(3, {2: 6, 3: 6})
    peer = Replica(world.log, world.pipeline, world.clock, world.entropy, "1")
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    for _ in range(3):
        service.step()
    assert service.status.state == "waiting"
    assert (
        service.status.waiting_for
        == "blocks of totals from bucket 2 on, which are deleted: requested buckets 2..2 of totals"
    )
    assert len(delivered(world.log, world.pipeline)) == 2
    peer.append_recomputed({2: rows(2, 6)})
    drain(service, 3)
    world.check()


def test_a_new_output_begins_after_what_nobody_has(world: World) -> None:
    """All other readers had passed the deleted blocks. The output reports that, and does not hold
    trimming back.
    """
    world.feed(4, {1: 6, 2: 6, 3: 6, 4: 6})
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    service = world.service()
    assert service.status.detail["left_out_ms"] == 200
    drain(service, 4)
    world.sizes = {3: 6, 4: 6}
    world.check()
    assert service._passed >= 2
    service.stop()
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 4)
    again = world.service()
    assert "left_out_ms" not in again.status.detail, "one that has delivered leaves nothing out"


def test_a_new_output_whose_blocks_are_deleted_after_its_start_begins_anew(world: World) -> None:
    service = world.service()
    world.feed(4, {1: 6, 2: 6, 3: 6, 4: 6})
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 2)
    drain(service, 4)
    world.sizes = {3: 6, 4: 6}
    world.check()
    assert str((service.status.state, service.status.waiting_for)) == "('running', None)"


def test_it_goes_on_over_a_log_with_a_snapshot(world: World) -> None:
    world.feed(9, {2: 30, 5: 8})
    drain(world.service(), 9)
    world.feed(12, {11: 5})
    assert trim_below_snapshot(world.log, "p.totals.boundaries", "0") == 3
    world.feed(14, {13: 5})
    service = world.service()
    drain(service, 14)
    world.check()
    service.step()
    trim_below_snapshot(world.log, "p.totals.boundaries", "0", forgotten=9)
    world.feed(16, {15: 5})
    drain(service, 16)
    world.check()


def test_a_bucket_that_is_trimmed_and_not_described_any_more_is_never_left_out(
    world: World,
) -> None:
    """The output was away while all others went on."""
    world.feed(1, {1: 6})
    first = world.service()
    drain(first, 1)
    first.stop()
    world.feed(9, {3: 30, 5: 8})
    trim_below_snapshot(world.log, "p.totals.boundaries", "0", forgotten=3)
    service = world.service()
    for _ in range(3):
        service.step()
    assert service.status.state == "waiting"
    assert str(service.status.waiting_for).startswith(
        "buckets 1..3 of totals, which are trimmed since all other readers have passed them: "
    )
    assert len(delivered(world.log, world.pipeline)) == 6
    reported = service.status.waiting_for
    world.feed(20, {11: 30, 18: 8})
    for _ in range(5):
        world.clock.advance(1_000)
        service.step()
    assert service.status.waiting_for == reported
    assert service._following().log_state.forgotten == 20, "it keeps nothing in memory"
    assert checkpoints(world)[-1] == 20, "it holds nothing back"
    assert len(delivered(world.log, world.pipeline)) == 6


def checkpoints(world: World) -> list[int]:
    """Return the last bucket that delivery does not need, as each of its heartbeats says."""
    entries = all_control_records(world.log, world.pipeline)
    return [
        each.checkpoint_bucket
        for each in entries
        if isinstance(each, Heartbeat) and each.service == "delivery"
    ]


def test_a_new_output_begins_after_what_is_not_described_any_more(world: World) -> None:
    world.feed(9, {2: 30, 5: 8})
    trim_below_snapshot(world.log, "p.totals.boundaries", "0", forgotten=2)
    service = world.service()
    assert service.status.detail["left_out_ms"] == 200
    drain(service, 9)
    world.sizes = {5: 8}
    world.check()


def test_a_replaced_process_does_not_ask_for_what_its_successor_let_be_deleted() -> None:
    world = World()
    replaced = world.service()
    world.feed(2, {1: 6, 2: 6})
    drain(world.service(), 2)
    world.log.trim(TopicPartition("p.totals.blocks.0", 0), 1)
    with pytest.raises(Fenced, match="another process delivers it"):
        drain(replaced, 2)
    world.check()


def test_rows_of_another_bucket_are_waited_for(world: World) -> None:
    """Of a partner that runs the stage, say: no process could deliver them, so none ends."""
    world.feed(1, {1: 6})
    world.replica.close_buckets(2, {2: rows(9, 5)})
    service = world.service()
    for _ in range(4):
        service.step()
    assert service.status.state == "waiting"
    assert "bucket 2 holds a row of another bucket" in (service.status.waiting_for or "")
    world.check()


def test_blocks_that_were_lost_with_a_disk_are_asked_for_by_a_new_output_too(world: World) -> None:
    """Nobody had passed them, unlike what was deleted: they are not left out."""
    world.feed(2, {1: 6})
    blocks = world.log.partition(TopicPartition("p.totals.blocks.0", 0))
    kept = list(blocks._records)
    world.log.cut(TopicPartition("p.totals.blocks.0", 0), 0)
    service = world.service()
    service.step()
    assert service.status.state == "waiting"
    assert "requested buckets 1..1 of totals" in (service.status.waiting_for or "")
    blocks._records[:] = kept
    world.clock.advance(10_000)
    drain(service, 2)
    world.check()


def test_blocks_at_whose_offsets_other_blocks_are_by_now_are_asked_for(world: World) -> None:
    """A partition that lost them has grown past their offsets: no bound shows it."""
    world.feed(2, {1: 6, 2: 5})
    places = [TopicPartition("p.totals.blocks.0", partition) for partition in (0, 1)]
    lost = [lose_and_grow(world.log, at) for at in places]
    service = world.service()
    service.step()
    assert service.status.state == "waiting"
    assert "requested buckets 1..2 of totals" in (service.status.waiting_for or "")
    for at, records in zip(places, lost, strict=True):
        world.log.partition(at)._records[:] = records
    world.clock.advance(10_000)
    drain(service, 2)
    world.check()


def test_blocks_that_are_not_as_they_should_be_are_waited_for(world: World) -> None:
    """They are not deleted: asking would bring nothing."""
    world.feed(2, {1: 6})
    blocks = world.log.partition(TopicPartition("p.totals.blocks.0", 0))
    kept = list(blocks._records)
    blocks._records[:] = [replace(record, value=b"") for record in kept]
    service = world.service()
    service.step()
    assert service.status.state == "waiting"
    assert "found 0 blocks" in (service.status.waiting_for or "")
    blocks._records[:] = kept
    world.clock.advance(10_000)
    drain(service, 2)
    world.check()


def test_records_without_key_are_spread_by_id() -> None:
    world = World(key=(), partitions=3)
    world.feed(2, {1: 6, 2: 5})
    drain(world.service(), 2)
    world.check()
    assert all(
        p == (i.bucket + i.position) % 3 and key is None
        for p, i, key, _ in delivered(world.log, world.pipeline)
    )


def rejected(world: World) -> list[tuple[RecordId, bytes | None, dict[str, bytes | None]]]:
    """(id, value, headers) of what stands in the topic of rejected results."""
    return [
        (RecordId.parse((dict(headers)["anabranch-id"] or b"").decode()), value, dict(headers))
        for chunk in everything(world.log, "p.out.rejected")
        for value, headers in zip(chunk.values, chunk.headers, strict=True)
    ]


def uneven(bucket: int, large: Collection[int], *, size: int = 500) -> pa.Table:
    """Four rows, of which those at ``large`` make records of more than ``size`` bytes."""
    table = rows(bucket, 4).sort_by("event_time")
    roads = [
        text * (size // 5) if n in large else text
        for n, text in enumerate(table.column("road").to_pylist())
    ]
    return table.set_column(1, "road", pa.array(roads))


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (FailingOperation.COMMIT, None),
        (FailingOperation.COMMIT, 0),
        (FailingOperation.FLUSH, 0),
    ],
)
def test_results_that_are_too_large_go_to_a_topic_of_their_own(
    world: World, fault: tuple[FailingOperation, int | None] | None
) -> None:
    """Each once, also where it is unknown whether it was written; the output goes on."""
    world.log.admin().create([TopicSettings("p.out", 2, config={"max.message.bytes": "300"})])
    service = world.service()
    world.replica.close_buckets(2, {1: uneven(1, {1, 3}), 2: uneven(2, ())})
    drain(service, 2)
    world.replica.close_buckets(4, {3: uneven(3, {0}), 4: uneven(4, {0, 1, 2, 3})})
    if fault is not None:
        for _ in range(3):
            world.log.fail_next(
                fault[0],
                applied=fault[1],
                topic="p.out.rejected" if fault[0] is FailingOperation.FLUSH else None,
            )
    drain(service, 4)
    restarted = world.service()
    world.replica.close_buckets(5, {5: uneven(5, {2})})
    drain(restarted, 5)
    large = [(1, 1), (1, 3), (3, 0), (4, 0), (4, 1), (4, 2), (4, 3), (5, 2)]
    assert [(ident.bucket, ident.position) for ident, _, _ in rejected(world)] == large
    taken = sorted(
        (ident.bucket, ident.position) for _, ident, _, _ in delivered(world.log, world.pipeline)
    )
    assert taken == sorted(
        {(bucket, position) for bucket in range(1, 6) for position in range(4)} - set(large)
    )
    _, value, headers = rejected(world)[0]
    assert len(json.loads(value or b"")["road"]) >= 500
    assert (
        headers["anabranch-topic"],
        headers["anabranch-reason"],
        headers["anabranch-event-time"],
    ) == (b"p.out", b"too_large", b"2")
    assert service._counters.rejected._value.get() >= 5, "less those of unknown outcome"
    assert restarted.status.detail["rejected"] == 1


def test_what_the_topic_of_rejected_results_does_not_take_either_comes_cut(world: World) -> None:
    world.log.admin().create([TopicSettings("p.out", 2, config={"max.message.bytes": "300"})])
    world.log.admin().create(
        [TopicSettings("p.out.rejected", 1, config={"max.message.bytes": "40000"})]
    )
    world.replica.close_buckets(1, {1: uneven(1, {1}, size=100_000)})
    drain(world.service(), 1)
    ((ident, value, headers),) = rejected(world)
    assert (ident, len(value or b"")) == (RecordId(1, 1), DEAD_LETTER_CUT_BYTES)
    assert int(headers["anabranch-truncated"] or b"") > 100_000
    assert len(delivered(world.log, world.pipeline)) == 3


def test_a_topic_that_rejects_is_waited_for_and_the_process_lives(world: World) -> None:
    """Also one of rejected results that takes nothing: a person is told, and nothing is lost."""
    world.log.admin().create([TopicSettings("p.out", 2, config={"max.message.bytes": "300"})])
    world.log.admin().create(
        [TopicSettings("p.out.rejected", 1, config={"max.message.bytes": "10"})]
    )
    service = world.service()
    world.replica.close_buckets(1, {1: uneven(1, {1})})
    for _ in range(50):
        service.step()
    assert "too large" in str(service.status.waiting_for)
    world.log.topics["p.out.rejected"] = (
        TopicSettings("p.out.rejected", 1),
        world.log.topics["p.out.rejected"][1],
    )
    drain(service, 1)
    assert [ident for ident, _, _ in rejected(world)] == [RecordId(1, 1)]
    assert len(delivered(world.log, world.pipeline)) == 3


@pytest.mark.parametrize(
    "fault",
    [
        None,
        (FailingOperation.COMMIT, None),
        (FailingOperation.COMMIT, 0),
        (FailingOperation.FLUSH, 0),
    ],
)
def test_rows_that_no_stream_holds_are_rejected_under_their_ids(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: tuple[FailingOperation, int | None] | None
) -> None:
    """Each once, also where it is unknown whether it was written."""
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 6_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 1_000)
    service = world.service()
    world.replica.close_buckets(2, {1: uneven(1, {1, 3}, size=9_000), 2: uneven(2, ())})
    drain(service, 2)
    world.replica.close_buckets(
        4, {3: uneven(3, {0}, size=9_000), 4: uneven(4, range(4), size=9_000)}
    )
    if fault is not None:
        for _ in range(3):
            world.log.fail_next(
                fault[0],
                applied=fault[1],
                topic="p.out.rejected" if fault[0] is FailingOperation.FLUSH else None,
            )
    drain(service, 4)
    assert not service.status.detail.get("rejected"), "the stage counts them, and says why"
    drain(world.service(), 4)
    found = {ident: (value, headers) for ident, value, headers in rejected(world)}
    assert len(found) == len(rejected(world)) == 7
    taken = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    assert sorted([*taken, *found]) == [RecordId(b, n) for b in range(1, 5) for n in range(4)]
    for ident, (value, headers) in found.items():
        assert json.loads(value or b"").keys() == {"car", "road", "total"}, "no floats"
        assert headers["anabranch-reason"] == b"row_too_large"
        assert int(headers["anabranch-truncated"] or b"") > 9_000
        event_time_ms = int(headers["anabranch-event-time"] or b"")
        assert (ident.bucket - 1) * 100 < event_time_ms <= ident.bucket * 100
        assert headers.keys() >= {"anabranch-origin", "anabranch-topic", "anabranch-row-digest"}


def unwritable(bucket: int, count: int) -> pa.Table:
    """Return rows without the key column."""
    return rows(bucket, count).drop_columns(["car"])


@pytest.mark.parametrize("stated", [rows(1, 1).schema, None])
@pytest.mark.parametrize("rows_max", [1_000, 3])
def test_results_that_the_output_cannot_write_are_rejected_and_hold_up_no_others(
    monkeypatch: pytest.MonkeyPatch, rows_max: int, stated: pa.Schema | None
) -> None:
    """Results are rejected where a partner may have written them, or the stage has other columns
    by now.
    """
    monkeypatch.setattr(module, "rows_bound", lambda _: rows_max)
    world = World()
    if stated is None:
        federation = Federation(name="f", participant="own", partners={"other": ["totals"]})
        world.pipeline = world.pipeline.model_copy(update={"federation": federation})
    schema = "" if stated is None else schema_text(stated)
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy, schema=schema)
    first = unwritable(2, 8)
    replica.close_buckets(3, {1: rows(1, 4), 2: first, 3: rows(3, 4)})
    service = world.service()
    drain(service, 3)
    assert service.status.detail["rejected"] == 8
    taken = [ident for _, ident, _, _ in delivered(world.log, world.pipeline)]
    found = {ident: (value, headers) for ident, value, headers in rejected(world)}
    assert len(rejected(world)) == len(found) == 8
    assert sorted([*taken, *found]) == [
        RecordId(bucket, n) for bucket, count in ((1, 4), (2, 8), (3, 4)) for n in range(count)
    ]
    assert {ident.bucket for ident in found} == {2}
    value, headers = found[RecordId(2, 0)]
    assert headers["anabranch-reason"] == b"not_writable"
    assert json.loads(value or b"").keys() == {"road", "total"}
    replica.close_buckets(5, {4: unwritable(4, 2), 5: rows(5, 1)})
    drain(world.service(), 5)
    assert len(rejected(world)) == 10
    assert len(delivered(world.log, world.pipeline)) == 9


@pytest.mark.parametrize("schema", ["", schema_text(unwritable(1, 1).schema)])
def test_a_stage_whose_own_columns_the_output_cannot_write_is_an_error(schema: str) -> None:
    """The pipeline file contradicts itself: a person corrects it, and no result is lost."""
    world = World()
    replica = Replica(world.log, world.pipeline, world.clock, world.entropy, schema=schema)
    replica.close_buckets(1, {1: unwritable(1, 2)})
    with pytest.raises(ConfigurationError, match="key column car"):
        drain(world.service(), 1)


def test_a_notice_that_the_topic_of_rejected_results_does_not_take_comes_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "ROW_BYTES_MAX", 6_000)
    monkeypatch.setattr(blocks, "BLOCK_BYTES_MAX", 1_000)
    config = {"max.message.bytes": "1000"}
    world.log.admin().create([TopicSettings("p.out.rejected", 1, config=config)])
    monkeypatch.setattr(rejected_module, "DEAD_LETTER_CUT_BYTES", 200)
    world.replica.close_buckets(1, {1: uneven(1, {1}, size=9_000)})
    drain(world.service(), 1)
    ((ident, value, headers),) = rejected(world)
    assert (ident, len(value or b"")) == (RecordId(1, 1), 200)
    assert int(headers["anabranch-truncated"] or b"") > 9_000
    assert headers["anabranch-reason"] == b"row_too_large"
