"""The live half of the delivery service on a log in memory whose transactions end as the test
says.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from anabranch.adapters.memory.log import FailingOperation
from anabranch.codec import control_records, live_records
from anabranch.codec.catalog import TopicSettings
from anabranch.delivery import live as module
from anabranch.delivery import read_back
from anabranch.delivery import service as service_module
from anabranch.delivery.service import DeliveryService
from anabranch.pipeline import waits
from anabranch.ports import Chunk, LogReader, TopicPartition
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.edge import live_choice, views
from anabranch.protocol.edge.live_delivery import Kind, LiveProgress
from anabranch.protocol.errors import ConfigurationError, OutcomeUnknown, Unavailable
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.records import GivenUp
from harness import outputs
from harness.live_world import FAILURE, World, compacted, feed, settle
from harness.outputs import delivered, drain, ids, rows
from harness.sources import everything
from harness.trimmed_log import trim_below_snapshot

LIVE = "p.out.live"
PROGRESS = "p.out.live.progress"


@pytest.fixture
def world() -> World:
    return World()


def test_a_failure_from_its_first_tentative_bucket_to_rec_done(world: World) -> None:
    service = world.service()
    for number in range(6):
        feed(world, number)
        settle(service)
    assert world.transcript() == FAILURE
    view = outputs.live_view(world.log, world.pipeline)
    found = delivered(world.log, world.pipeline)
    assert [(r.id, r.key, r.value) for r in view.stable()] == [(i, k, v) for _, i, k, v in found]
    assert (
        list(view.tentative()),
        view.in_failure,
        view.failures,
        view.stable_upto,
        view.gaps,
    ) == ([], False, 1, 7, 0)
    detail = service.status.detail
    assert (
        detail["live"],
        detail["live_stable_ms"],
        detail["live_shown_ms"],
        detail["live_failure"],
    ) == ("running", 700, 700, False)


@pytest.mark.parametrize("upsert", [False, True])
def test_stable_records_name_what_was_given_up(*, upsert: bool) -> None:
    world = World(upsert=upsert)
    world.replica.close_buckets(4, {3: rows(3, 1), 4: rows(4, 8)}, (GivenUp("cars", 4, 4),))
    settle(world.service())
    found = [dict(headers) for chunk in everything(world.log, LIVE) for headers in chunk.headers]
    named = {
        (h["anabranch-id"] or b"").split(b".")[0]: h.get("anabranch-missing")
        for h in found
        if h.get("anabranch-kind") == b"insertion"
    }
    assert named == ({b"4": b"cars"} if upsert else {b"3": None, b"4": b"cars"})


def test_columns_that_change_in_one_transaction(world: World) -> None:
    both, other = rows(2, 4), rows(3, 2).drop_columns(["mean"])
    world.replica.close_buckets(1, {1: rows(1, 1), 2: both.slice(0, 2)})
    world.replica.close_buckets(2, {2: both.slice(2).drop_columns(["mean"])})
    world.replica.show(3, {3: other})
    world.replica.show(4, {4: rows(4, 1)})
    settle(world.service())
    assert world.transcript() == [
        "insertion 1, insertion 2 x4, boundary 2",
        "tentative 3 x2, tentative 4, boundary 2/4",
    ]
    view = outputs.live_view(world.log, world.pipeline)
    found = {record.id: "mean" in json.loads(record.value or b"") for record in view.records()}
    assert [found[RecordId(*at)] for at in ((1, 0), (2, 0), (2, 3), (3, 0), (4, 0))] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_what_a_tentative_record_says(world: World) -> None:
    service = world.service()
    branch = world.replica.show(1, {1: rows(1, 2)}, ("reports", "other"))
    settle(service)
    record = next(
        r for _, r in outputs.live_records_of(world.log, world.pipeline) if r.kind is Kind.TENTATIVE
    )
    assert (record.id, record.branch, record.missing, record.event_time_ms) == (
        RecordId(1, 0),
        branch,
        ("reports", "other"),
        1,
    )
    assert json.loads(record.value or b"")["total"] == 1_000_000
    assert (service.status.detail["live_failure"], service.status.detail["live_shown_ms"]) == (
        True,
        100,
    )


def test_what_is_shown_is_worth_less_the_later_it_is_and_the_more_it_lacks() -> None:
    world = World()
    service = world.service()
    labels = {"pipeline": world.pipeline.name, "output": "out"}

    def utility() -> int:
        settle(service)
        found = service.status.detail["live_utility"]
        assert isinstance(found, int)
        value = service._context.registry.get_sample_value("anabranch_delivery_utility", labels)
        assert value == found / 1_000
        return found

    first = world.clock.now_ms() // world.pipeline.bucket_ms
    world.replica.close_buckets(first, {first: rows(first, 1)})
    assert utility() == 1_000
    world.replica.show(first + 1, {first + 1: rows(first + 1, 1)}, (), shed=700)
    assert utility() == 300
    world.replica.close_buckets(first + 1, {first + 1: rows(first + 1, 1)})
    assert utility() > 800, "it lacks nothing any more, and some time has passed"
    knee_ms = waits.bound_ms(world.pipeline, world.pipeline.outputs["out"].stage)
    next_ms = (first + 2) * world.pipeline.bucket_ms
    world.clock.sleep_ms(next_ms + knee_ms * 3 // 2 - world.clock.now_ms())
    assert 0 < utility() < 500
    world.clock.sleep_ms(knee_ms)
    assert utility() == 0


@pytest.mark.parametrize("upsert", [False, True])
def test_a_tentative_record_says_how_many_rows_were_left_out(*, upsert: bool) -> None:
    world = World(upsert=upsert)
    world.replica.show(1, {1: rows(1, 1)}, ("reports",), shed=300)
    world.replica.show(2, {2: rows(2, 1)})
    world.replica.show(3, {3: rows(3, 1)}, (), shed=700)
    settle(world.service())
    found = [dict(headers) for chunk in everything(world.log, LIVE) for headers in chunk.headers]
    said = {
        (h["anabranch-id"] or b"").split(b".")[0]: h.get("anabranch-shed")
        for h in found
        if h.get("anabranch-kind") == b"tentative"
    }
    assert said == ({b"3": b"700"} if upsert else {b"1": b"300", b"2": None, b"3": b"700"})


@pytest.mark.parametrize(
    "operation", [FailingOperation.FLUSH, FailingOperation.COMMIT, FailingOperation.BEGIN]
)
@pytest.mark.parametrize("applied", [None, 0])
@pytest.mark.parametrize("at", range(6))
def test_an_unknown_outcome_at_any_transaction_is_settled(
    world: World, operation: FailingOperation, applied: int | None, at: int
) -> None:
    service = world.service()
    for number in range(6):
        feed(world, number)
        if number == at:
            world.log.fail_next(
                operation,
                applied=applied,
                topic=LIVE if operation is FailingOperation.FLUSH else None,
            )
        settle(service)
    assert world.transcript() == FAILURE
    assert service._live is not None
    assert service._live._counters.unknown._value.get() == 1


@pytest.mark.parametrize("at", range(6))
def test_killed_between_any_two_transactions(world: World, at: int) -> None:
    service = world.service()
    for number in range(6):
        feed(world, number)
        if number == at:
            service = world.service()  # nothing of the older process runs any more
        settle(service)
    assert world.transcript() == FAILURE


def test_outcomes_that_stay_unknown_do_not_stop_the_corrected_topic(world: World) -> None:
    service = world.service()
    feed(world, 0)
    assert service._live is not None

    class Spoilt:
        def __init__(self, real: object) -> None:
            self._real = real

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

        def commit(self) -> None:
            raise OutcomeUnknown("planned")

    real = world.log.transactional_writer

    def writer(ident: str) -> object:
        return Spoilt(real(ident)) if ident.endswith("live") else real(ident)

    world.log.transactional_writer = writer  # type: ignore[method-assign, assignment]
    service._live._writer = Spoilt(service._live._writer)  # type: ignore[assignment]
    drain(service, 3)
    assert len(delivered(world.log, world.pipeline)) == 5
    assert service.status.detail["live"] == "waiting: planned"
    world.log.transactional_writer = real  # type: ignore[method-assign]
    for _ in range(20):
        service.step()
    assert world.transcript() == FAILURE[:1]


def test_a_record_that_the_live_topic_rejects_does_not_stop_the_corrected_one(world: World) -> None:
    world.log.admin().create([TopicSettings(LIVE, 1, config={"max.message.bytes": "10"})])
    service = world.service()
    feed(world, 0)
    drain(service, 3)
    assert "too large" in str(service.status.detail["live"])
    assert len(delivered(world.log, world.pipeline)) == 5


def test_the_corrected_topic_begins_only_when_it_is_recorded_where_the_live_one_begins(
    world: World,
) -> None:
    feed(world, 0)
    service = outputs.service(world.log, world.pipeline, world.clock, world.entropy)
    world.log.admin().create([TopicSettings(PROGRESS, 1)])
    world.log.fail_next(FailingOperation.OFFSETS, error=Unavailable, topic=PROGRESS)
    service.start()
    assert service.status.waiting_for == "the live topic of output out has not been read back yet"
    drain(service, 3)
    settle(service)
    assert world.transcript() == FAILURE[:1]


@pytest.mark.parametrize("at", range(6))
def test_a_restart_over_a_log_with_a_snapshot_at_any_point(world: World, at: int) -> None:
    service = world.service()
    for number in range(6):
        feed(world, number)
        if number == at:
            service.stop()
            world.replica.poll()
            trim_below_snapshot(world.log, "p.totals.boundaries", "0", forgotten=3 if at else 0)
            service = world.service()
        settle(service)
    assert world.transcript() == FAILURE


def test_what_is_trimmed_and_not_described_any_more_is_reported(world: World) -> None:
    feed(world, 0)
    service = world.service()
    settle(service)
    service.stop()
    world.replica.close_buckets(9, {9: rows(9, 4)})
    trim_below_snapshot(world.log, "p.totals.boundaries", "0", forgotten=9)
    service = world.service()
    settle(service)
    text = str(service.status.detail["live"])
    assert "are trimmed, and its boundary log no longer describes them" in text
    assert "Deliver to new topics, under a new output name" in text
    assert service.status.state == "waiting"
    world.replica.close_buckets(12, {12: rows(12, 4)})
    settle(service)
    assert service._passed == 12, "neither half holds anything back"


def test_a_live_topic_that_is_added_later_begins_where_the_corrected_one_is(world: World) -> None:
    output = world.pipeline.outputs["out"]
    world.pipeline = world.pipeline.model_copy(
        update={"outputs": {"out": output.model_copy(update={"live": None})}}
    )
    feed(world, 0)
    drain(world.service(), 3)
    world.replica.close_buckets(4, {4: rows(4, 4)})
    drain(world.service(), 4)
    assert output.live is not None
    world.pipeline = world.pipeline.model_copy(update={"outputs": {"out": output}})
    service = world.service()
    settle(service)
    world.replica.close_buckets(5, {5: rows(5, 2)})
    settle(service)
    assert world.transcript() == ["insertion 5 x2, boundary 5"]


def test_an_open_transaction_of_another_producer_is_not_waited_for_long(world: World) -> None:
    world.log.admin().create([TopicSettings(PROGRESS, 1)])
    other = world.log.transactional_writer("other")
    other.begin()
    other.send(TopicPartition(PROGRESS, 0), b"open")
    other.flush()
    service = world.service()
    assert "another producer's transaction is open" in str(service.status.detail["live"])
    other.abort()
    feed(world, 0)
    drain(service, 3)
    settle(service, 20)
    assert world.transcript() == FAILURE[:1]


def test_foreign_records_in_the_progress_topic_do_not_disturb(world: World) -> None:
    world.log.admin().create([TopicSettings(PROGRESS, 1)])
    writer = world.log.writer()
    foreign = live_records.encode_progress(LiveProgress("other", 1, 5, 9))
    for value in (b"x", foreign):
        writer.send(TopicPartition(PROGRESS, 0), value)
    writer.flush()
    service = world.service()
    feed(world, 0)
    settle(service)
    assert world.transcript() == FAILURE[:1]


def test_tentative_blocks_that_are_gone_are_left_out() -> None:
    world = World(partitions=2)
    service = world.service()
    world.replica.show(1, {1: rows(1, 6)})
    for partition in range(2):
        at = TopicPartition("p.totals.blocks.0", partition)
        world.log.trim(at, world.log.partition(at).end)
    world.replica.show(2, {2: rows(2, 2)})
    settle(service)
    found = [
        r for _, r in outputs.live_records_of(world.log, world.pipeline) if r.kind is Kind.TENTATIVE
    ]
    assert sorted(str(r.id) for r in found) == ["2.0", "2.1"]
    assert len(world.transcript()) == 1


def test_with_the_undo_a_bucket_comes_from_whoever_has_it() -> None:
    world = World(replicas=2)
    first, second = world.replicas
    service = world.service()
    first.show(2, {1: rows(1, 2), 2: rows(2, 2)})
    settle(service)
    second.show(2, {2: rows(2, 5)})
    at = TopicPartition("p.totals.blocks.0", 0)
    world.log.trim(at, world.log.partition(at).end)
    second.close_buckets(1, {1: rows(1, 3)})
    settle(service)
    assert world.transcript() == [
        "tentative 1 x2, tentative 2 x2, boundary 0/2",
        "undo, insertion 1 x3, tentative 2 x5, boundary 1/2",
    ]


def test_tentative_buckets_come_from_the_better_replica() -> None:
    world = World(replicas=2)
    first, second = world.replicas
    service = world.service()
    world.says("0", "stabilization")
    world.says("1", "up_failure")
    first.show(1, {1: rows(1, 2)})
    second.show(1, {1: rows(1, 3)})
    settle(service)
    assert world.transcript() == ["tentative 1 x3, boundary 0/1"]
    service.stop()
    service.stop()


def test_large_transactions_are_read_in_portions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIVE_CHUNK_ROWS", 4)
    service = world.service()
    world.replica.close_buckets(3, {1: rows(1, 3), 2: rows(2, 3), 3: rows(3, 9)})
    world.replica.show(6, {4: rows(4, 3), 5: rows(5, 3), 6: rows(6, 1)})
    settle(service)
    assert world.transcript() == [
        "insertion 1 x3, insertion 2 x3, insertion 3 x9, boundary 3",
        "tentative 4 x3, tentative 5 x3, tentative 6, boundary 3/6",
    ]


def test_many_stable_buckets_are_seen_page_by_page(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_choice, "DELIVERY_BUCKETS_MAX", 2)
    service = world.service()
    buckets = (1, 2, 4, 5, 9)
    world.replica.close_buckets(9, {bucket: rows(bucket, 1) for bucket in buckets})
    settle(service)
    world.replica.show(20, {10 + bucket: rows(10 + bucket, 1) for bucket in buckets})
    settle(service)
    assert world.transcript() == [
        "insertion 1, insertion 2, insertion 4, insertion 5, insertion 9, boundary 9",
        "tentative 11, tentative 12, tentative 14, tentative 15, tentative 19, boundary 9/20",
    ]


def test_the_corrected_topic_takes_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "BESIDE_LIVE_ROWS_MAX", 10)
    service = world.service()
    world.replica.close_buckets(1, {1: rows(1, 95)})
    service.step()
    service.step()
    service.step()
    world.replica.show(2, {2: rows(2, 1)})
    service.step()
    service.step()
    assert world.transcript()[-1] == "tentative 2, boundary 1/2"
    assert len(delivered(world.log, world.pipeline)) < 95
    drain(service, 1)
    assert [i for _, i, _, _ in delivered(world.log, world.pipeline)] == ids({1: 95})


def test_the_log_state_keeps_what_the_live_topic_still_needs(world: World) -> None:
    service = world.service()
    feed(world, 0)
    settle(service)
    assert service._following().log_state.forgotten == 0
    world.replica.close_buckets(4, {4: rows(4, 1)})
    settle(service)
    assert service._following().log_state.forgotten == 3


def test_heartbeats_say_what_no_failover_reads_again(world: World) -> None:
    service = world.service()
    feed(world, 0)
    settle(service)
    world.replica.close_buckets(4, {4: rows(4, 1)})
    settle(service, 20)
    service.stop()
    beats = [
        control_records.decode(value)
        for chunk in everything(world.log, "p.control.delivery.out", 1)
        for value in chunk.values
    ]
    found = [
        (b.service, b.name, b.state, b.bucket, b.checkpoint_bucket)
        for b in beats
        if isinstance(b, Heartbeat)
    ]
    assert (found[0], found[-1]) == (
        ("delivery", "out", "running", 0, 0),
        ("delivery", "out", "running", 4, 3),
    )


def test_topics_that_cannot_be_right_are_rejected() -> None:
    world = World(live_partitions=3)
    world.log.admin().create([TopicSettings(LIVE, 2)])
    with pytest.raises(ConfigurationError, match="has 2 partitions, but the pipeline file says 3"):
        world.service()
    world = World()
    world.log.admin().create([TopicSettings(LIVE, 1, config={"cleanup.policy": "compact"})])
    with pytest.raises(ConfigurationError, match="would remove parts of the sequence"):
        world.service()
    world = World(upsert=True)
    world.log.admin().create([TopicSettings(LIVE, 1, config={"cleanup.policy": "delete"})])
    with pytest.raises(ConfigurationError, match="an upsert view keeps its state in its topic"):
        world.service()


def test_partitions_are_pinned(world: World) -> None:
    world.service()
    settings, partitions = world.log.topics[LIVE]
    world.log.topics[LIVE] = (settings, [*partitions, *partitions])
    with pytest.raises(ConfigurationError, match="has 2 partitions, delivery began with 1"):
        world.service()


def test_control_kinds_go_to_every_partition() -> None:
    world = World(partitions=3)
    service = world.service()
    for number in range(6):
        feed(world, number)
        settle(service)
    for partition in range(3):
        kinds = [
            r.kind for p, r in outputs.live_records_of(world.log, world.pipeline) if p == partition
        ]
        assert (kinds.count(Kind.UNDO), kinds.count(Kind.REC_DONE), kinds.count(Kind.BOUNDARY)) == (
            1,
            1,
            6,
        )
    view = outputs.live_view(world.log, world.pipeline)
    assert len(list(view.records())) == 15
    assert view.sequence == 6


# -- the compacted view
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", range(7))
def test_an_upsert_view_restores_what_an_undo_takes_back(restart: int) -> None:
    world = World(upsert=True, partitions=2)
    service = world.service()
    expected: list[dict[int, tuple[str, int | None]]] = [
        {0: ("insertion", 1_000_000), 1: ("insertion", 1_000_001)},
        {0: ("tentative", 2_000_000), 1: ("tentative", 2_000_001), 2: ("tentative", 2_000_002)},
        {0: ("tentative", 3_000_000), 1: ("tentative", 2_000_001), 2: ("tentative", 2_000_002)},
        {0: ("tentative", 3_000_000), 1: ("undo", 1_000_001), 2: ("undo", None)},
        {0: ("insertion", 3_000_000), 1: ("insertion", 3_000_001), 2: ("undo", None)},
        {0: ("insertion", 3_000_000), 1: ("insertion", 3_000_001), 2: ("undo", None)},
    ]
    feeds: list[Callable[[], object]] = [
        lambda: world.replica.close_buckets(1, {1: rows(1, 2)}),
        lambda: world.replica.show(2, {2: rows(2, 3)}),
        lambda: world.replica.show(3, {3: rows(3, 1)}),
        lambda: world.replica.close_buckets(2, {}),
        lambda: world.replica.close_buckets(3, {3: rows(3, 2)}),
        lambda: world.replica.close_buckets(4, {}),
    ]
    for number, (feed_it, answer) in enumerate(zip(feeds, expected, strict=True)):
        feed_it()
        if number == restart:
            service = world.service()
        settle(service)
        assert compacted(world) == answer, number
    assert world.service().status.detail["live_keys"] == 2


def test_foreign_records_of_an_upsert_view_are_counted() -> None:
    world = World(upsert=True)
    world.log.admin().create([TopicSettings(LIVE, 1, config={"cleanup.policy": "compact"})])
    writer = world.log.writer()
    writer.send(TopicPartition(LIVE, 0), b"x", b"k")
    writer.send(TopicPartition(LIVE, 0), None, None, [("anabranch-kind", b"undo")])
    writer.flush()
    assert world.service().status.detail["live_foreign_records"] == 1


def metric(service: DeliveryService, name: str) -> float | None:
    return service._context.registry.get_sample_value(
        f"anabranch_delivery_live_{name}", {"pipeline": "p", "output": "out"}
    )


def test_an_upsert_view_that_outgrows_its_bound_waits_and_the_corrected_topic_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the commit that does it, and at each start after that."""
    world = World(upsert=True)
    service = world.service()
    world.replica.close_buckets(1, {1: rows(1, 2)})
    drain(service, 1)
    assert metric(service, "waiting") == 0
    monkeypatch.setattr(views, "UPSERT_BYTES_MAX", 1_000)
    world.replica.close_buckets(2, {2: rows(2, 7)})
    drain(service, 2)
    assert "holds more than 1000 bytes" in str(service.status.detail["live"])
    assert metric(service, "waiting") == 1
    service = world.service()
    assert (
        "waiting: output out: the upsert view of its live topic holds more than 1000 bytes"
        in str(service.status.detail["live"])
    )
    world.replica.close_buckets(3, {3: rows(3, 1)})
    drain(service, 3)
    assert len(delivered(world.log, world.pipeline)) == 10
    assert (len(compacted(world)), metric(service, "waiting")) == (7, 1)
    assert service._live is not None
    assert service._live.passed >= 1, "what the view has is not read again"
    monkeypatch.setattr(views, "UPSERT_BYTES_MAX", 10_000)
    world.clock.sleep_ms(600_000)
    settle(service)
    assert (service.status.detail["live"], metric(service, "waiting"), compacted(world)[0]) == (
        "running",
        0,
        ("insertion", 3_000_000),
    )


def test_reading_a_view_back_may_take_long_while_it_gets_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records come every 3 s, more than 5 s in all; where nothing comes for 5 s it is given
    up, for the corrected topic's sake.
    """
    world = World(upsert=True)
    first = world.service()
    for bucket in range(1, 5):
        world.replica.close_buckets(bucket, {bucket: rows(bucket, 2)})
        settle(first)
    first.stop()
    monkeypatch.setattr(read_back, "_FETCH_RECORDS", 2)
    slow, pause_ms = world.log.reader, 3_000

    def reader(*, committed: bool, headers: bool, follows: bool = False) -> LogReader:
        made = slow(committed=committed, headers=headers, follows=follows)
        fetch, turns = made.fetch, iter(range(1_000))

        def later(records_max: int, wait_ms: int) -> list[Chunk]:
            if not (committed and headers):
                return fetch(records_max, wait_ms)
            world.clock.sleep_ms(pause_ms)
            return fetch(records_max, wait_ms) if next(turns) % 2 else []

        made.fetch = later  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(world.log, "reader", reader)
    assert world.service().status.detail["live"] == "running"
    pause_ms = 6_000
    assert "is readable up to 0 of" in str(world.service().status.detail["live"])
