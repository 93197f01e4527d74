"""The decisions of delivery, one by one; whole histories are in
tests/unit/protocol/edge/test_delivery_properties.py.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge import delivery
from anabranch.protocol.edge.delivery import (
    DELIVERY_BYTES_MAX,
    DELIVERY_ROWS_MAX,
    REJECTED,
    CorrectedDelivery,
    Form,
    Lack,
    Run,
    Slice,
    begin_of,
    end_of,
    live_asks,
    may_reject,
    rows_bound,
)
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.records import Part
from harness.present import present

SIZES = [(2, 3), (3, 4), (7, 2)]


def fresh(partitions: int = 2) -> CorrectedDelivery:
    machine = CorrectedDelivery("out", None, [0] * (partitions + 1), [0] * (partitions + 1))
    machine.recovered(upto=100)
    return machine


def comparing(machine: CorrectedDelivery) -> bool:
    return machine.comparing


def progress(
    first: tuple[int, int] = (2, 0),
    last_bucket: int = 3,
    next_position: int = 0,
    positions: tuple[int, ...] = (5, 6),
) -> DeliveryProgress:
    return DeliveryProgress(
        "out",
        first[0],
        last_bucket,
        (*enumerate(positions), (REJECTED, 2)),
        1,
        first[1],
        next_position,
    )


def test_rows_bound_follows_the_size_of_rows() -> None:
    def of(rows: int, size_bytes: int) -> Part:
        return Part(2, 0, "a", 1, 0, 1, rows, 7, size_bytes)

    assert rows_bound([of(10, 700), of(30, 2_000)]) == DELIVERY_ROWS_MAX
    assert rows_bound([of(3, DELIVERY_BYTES_MAX // 4), of(7, DELIVERY_BYTES_MAX // 4)]) == 20
    assert rows_bound([of(1, DELIVERY_BYTES_MAX * 10)]) == 1
    assert rows_bound([]) == 1


def test_a_run_takes_whole_buckets_up_to_its_rows() -> None:
    machine = fresh()
    run = machine.plan(9, SIZES, 8)
    assert run == Run(RecordId(1, 0), RecordId(4, 0), (Slice(2, 0, 3), Slice(3, 0, 4)))
    assert run.rows == 7
    machine.advance(run, {0: 9})
    assert machine.plan(9, SIZES[2:], 8) == Run(RecordId(4, 0), RecordId(10, 0), (Slice(7, 0, 2),))


def test_a_large_bucket_is_cut() -> None:
    machine = fresh()
    runs = []
    for _ in range(3):
        run = present(machine.plan(2, [(2, 5)], 2))
        machine.advance(run, None)
        runs.append(run.slices)
    assert runs == [(Slice(2, 0, 2),), (Slice(2, 2, 4),), (Slice(2, 4, 5),)]
    assert machine.plan(2, [], 2) is None
    # a large bucket waits until what is before it is written
    assert fresh().plan(9, [(2, 1), (3, 100)], 10) == Run(
        RecordId(1, 0), RecordId(3, 0), (Slice(2, 0, 1),)
    )


def test_empty_buckets_are_gone_through() -> None:
    machine = fresh()
    run = machine.plan(4, [], 10)
    assert run == Run(RecordId(1, 0), RecordId(5, 0), ())
    machine.advance(run, None)
    assert machine.plan(4, [], 10) is None
    assert machine.cursor == RecordId(5, 0)


def test_a_run_has_a_bounded_number_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DELIVERY_BUCKETS_MAX", 2)
    assert fresh().plan(9, [(2, 1), (3, 1), (4, 1)], 10) == Run(
        RecordId(1, 0), RecordId(4, 0), (Slice(2, 0, 1), Slice(3, 0, 1))
    )


def test_a_bucket_cannot_have_shrunk() -> None:
    machine = CorrectedDelivery("out", progress(first=(2, 4)), [0, 0, 0], [9, 9, 9])
    machine.recovered(9)
    with pytest.raises(RemoteProtocolError, match="bucket 2 has 3 records, of which 4"):
        machine.plan(9, SIZES, 10)
    exact = CorrectedDelivery("out", progress(first=(2, 3)), [0, 0, 0], [9, 9, 9])
    exact.recovered(9)
    assert exact.plan(3, SIZES[:2], 10) == Run(RecordId(2, 3), RecordId(4, 0), (Slice(3, 0, 4),))


def test_it_plans_only_after_reading_back() -> None:
    with pytest.raises(LocalProtocolError, match="before it has read back"):
        CorrectedDelivery("out", None, [0, 0], [0, 0]).plan(9, SIZES, 10)


def test_a_first_delivery_reads_the_whole_topic() -> None:
    machine = CorrectedDelivery("out", None, [3, 0, 1], [9, 9, 4])
    assert machine.read_from == (3, 0, 1)
    assert machine.cursor == delivery.BEGINNING


def test_a_new_output_may_begin_after_a_bucket() -> None:
    machine = CorrectedDelivery("out", None, [0, 0, 0], [9, 9, 9], after=2)
    assert machine.cursor == RecordId(3, 0)
    assert not machine.found(RecordId(2, 5))
    machine.recovered(9)
    assert machine.plan(3, SIZES[1:2], 10) == Run(RecordId(3, 0), RecordId(4, 0), (Slice(3, 0, 4),))
    assert CorrectedDelivery(
        "out", progress(first=(2, 1)), [0, 0, 0], [9, 9, 9], after=7
    ).cursor == RecordId(2, 1), "one that has progress does not"


def test_whose_progress_is_in_the_log_tells_who_delivers() -> None:
    own = progress(first=(2, 1), next_position=2)
    machine = CorrectedDelivery("out", own, [0, 6, 0], [9, 9, 9])
    assert not machine.is_overtaken(None)
    assert not machine.is_overtaken(own)
    assert machine.is_overtaken(progress(first=(2, 1), next_position=3))


@pytest.mark.parametrize(
    ("written", "gone", "gone_upto", "lack"),
    [
        (progress(first=(9, 0), last_bucket=9), None, 0, Lack.REPLACED),
        (progress(), None, 0, Lack.DAMAGED),
        (progress(), (2, 3), 3, Lack.AWAITED),
        (None, (1, 3), 3, Lack.LEFT_OUT),
        (None, (1, 3), 1, Lack.LEFT_OUT),
        (None, (1, 3), 0, Lack.AWAITED),
    ],
)
def test_de9_without_blocks_less_is_never_delivered(
    written: DeliveryProgress | None, gone: tuple[int, int] | None, gone_upto: int, lack: Lack
) -> None:
    machine = CorrectedDelivery("out", progress(), (0, 0, 0), (9, 9, 9)) if written else fresh()
    assert machine.without_blocks(written, gone, lambda: gone_upto) is lack


def begun_late(after: int) -> DeliveryProgress:
    """Return the progress that records where an output begins that leaves out buckets."""
    machine = CorrectedDelivery("out", None, (0, 0, 0), (9, 9, 9), after=after)
    run = present(machine.beginning())
    return machine.progress(run, 0)


def test_de12_where_an_output_begins_is_recorded_before_it_delivers() -> None:
    assert fresh().beginning() == Run(RecordId(1, 0), RecordId(1, 0), ()), "at the beginning, too"
    assert CorrectedDelivery("out", progress(), (0, 0, 0), (9, 9, 9)).beginning() is None
    record = begun_late(2)
    assert (delivery.begin_of(record), delivery.end_of(record)) == (RecordId(3, 0), RecordId(3, 0))
    assert not delivery.has_run(record)
    assert delivery.has_run(progress())
    again = CorrectedDelivery("out", record, (0, 0, 0), (9, 9, 9))
    assert (again.cursor, again.passed, again.beginning()) == (RecordId(3, 0), 2, None)
    assert not again.is_overtaken(record)
    assert again.is_overtaken(begun_late(4)), "another process has seen more go"
    later = CorrectedDelivery("out", record, (0, 0, 0), (9, 9, 9), after=4)
    assert later.beginning() == Run(RecordId(5, 0), RecordId(5, 0), ())


@pytest.mark.parametrize("ends", [(9, 9, 9, 9), (8, 9, 9)])
def test_de12_a_topic_that_changes_before_it_has_results_is_read_back_as_a_whole(
    ends: tuple[int, ...],
) -> None:
    """It gets more partitions, or is made anew."""
    starts = (0,) * len(ends)
    record = begun_late(2)
    machine = CorrectedDelivery("out", record, starts, ends)
    assert machine.read_from == starts
    machine.recovered(upto=100)
    assert machine.beginning() == Run(RecordId(3, 0), RecordId(3, 0), ())
    again = machine.progress(present(machine.beginning()), 0)
    assert CorrectedDelivery("out", again, starts, ends).beginning() is None
    with pytest.raises(ConfigurationError):
        CorrectedDelivery("out", progress(positions=(9, 9)), starts, ends)


@pytest.mark.parametrize(
    ("delivered", "has_any", "asks"),
    [
        (9, True, False),  # the corrected half asks for both
        (10, False, True),  # it has them behind it
        (None, True, True),
        (None, False, False),  # the output may begin after them
    ],
)
def test_de9_the_live_half_asks_for_what_the_corrected_one_does_not(
    delivered: int | None, has_any: bool, asks: bool
) -> None:
    assert live_asks(delivered, 9, has_any=has_any) is asks


@pytest.mark.parametrize(("live_has_any", "lack"), [(False, Lack.LEFT_OUT), (True, Lack.AWAITED)])
@pytest.mark.parametrize("written", [None, begun_late(2)])
def test_de9_what_the_live_topic_has_begun_with_is_waited_for(
    written: DeliveryProgress | None, live_has_any: bool, lack: Lack
) -> None:
    machine = CorrectedDelivery("out", written, (0, 0, 0), (9, 9, 9))
    assert machine.without_blocks(written, (3, 4), lambda: 4, live_has_any=live_has_any) is lack


def test_de10_what_is_passed_is_before_the_last_run_that_is_recorded() -> None:
    machine = CorrectedDelivery("out", progress(first=(2, 1)), (0, 0, 0), (9, 9, 9))
    assert machine.passed == 1
    machine.recovered(upto=9)
    for ends, passed in ((None, 1), ({0: 9}, 2), (None, 2), ({}, 6)):
        left = [
            size for size in ((2, 3), (4, 3), (6, 3), (7, 3)) if size[0] >= machine.cursor.bucket
        ]
        run = present(machine.plan(9, left, 3))
        machine.advance(run, ends)
        assert machine.passed == passed, run


def test_it_goes_on_at_the_beginning_of_the_last_run() -> None:
    record = progress(first=(2, 1), next_position=2)
    assert (begin_of(record), end_of(record)) == (RecordId(2, 1), RecordId(4, 2))
    machine = CorrectedDelivery("out", record, [0, 6, 0], [9, 9, 9])
    assert (machine.cursor, machine.read_from, machine.comparing) == (
        RecordId(2, 1),
        (5, 6, 2),
        False,
    )


def test_what_is_there_is_not_written_and_positions_stay_until_it_is_passed() -> None:
    machine = CorrectedDelivery("out", progress(), [0, 0, 0], [20, 30, 7])
    assert not machine.found(RecordId(1, 8))  # before the last run: of no interest
    assert machine.found(RecordId(3, 1))
    assert not machine.found(RecordId(3, 1))
    assert machine.found(RecordId(5000, 0))
    assert machine.recovered(upto=9) == 1  # bucket 5000 is not stable: not ours
    run = present(machine.plan(9, SIZES, 3))
    assert comparing(machine)
    assert machine.there(RecordId(3, 1), 0)
    assert not machine.there(RecordId(3, 0), 0)
    record = machine.progress(run, 77)
    assert record == DeliveryProgress(
        "out", 2, 3, ((0, 5), (1, 6), (REJECTED, 2)), 77, 0, 0
    )  # its end does not go back before bucket 3's
    machine.advance(run, {1: 33})
    assert comparing(machine)
    run = present(machine.plan(9, SIZES[1:], 4))
    machine.advance(run, {0: 22})
    assert not comparing(machine)
    run = present(machine.plan(9, SIZES[2:], 4))
    assert machine.progress(run, 78) == DeliveryProgress(
        "out", 4, 9, ((0, 22), (1, 33), (REJECTED, 7)), 78, 0, 0
    )


def test_what_retention_removed_counts_as_written_if_a_progress_record_names_it() -> None:
    machine = CorrectedDelivery("out", progress(), [0, 8, 3], [9, 9, 9])
    machine.recovered(9)
    assert machine.read_from == (5, 8, 3)
    assert comparing(machine)
    assert machine.there(RecordId(3, 2), 1)
    assert not machine.there(RecordId(3, 2), 0)
    assert not machine.there(RecordId(4, 0), 1)
    machine.advance(Run(RecordId(2, 0), RecordId(4, 0), ()), None)
    assert not comparing(machine)


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
def test_de14_after_another_crash_the_same_counts_as_written_and_not_one_id_more(rows: int) -> None:
    """Up to the second row of bucket 3 all is in partition 1, and removed; each process crashes
    after two runs, of which every third time the second one leaves its progress record alone.
    """
    newest, written = progress(last_bucket=2, next_position=2), list[RecordId]()
    for life in range(20):
        machine = CorrectedDelivery("out", newest, [0, 8, 3], [9, 9 + len(written), 9])
        for ident in written[max(0, machine.read_from[1] - 9) :]:
            machine.found(ident)
        machine.recovered(9)
        for is_second in (False, True):
            sizes = [each for each in SIZES if each[0] >= machine.cursor.bucket]
            run = machine.plan(9, sizes, rows)
            if run is None:
                break
            idents = [RecordId(s.bucket, at) for s in run.slices for at in range(s.start, s.stop)]
            new = [ident for ident in idents if not machine.there(ident, 1)]
            written += [] if is_second and life % 3 == 0 else new
            newest = machine.progress(run, 1)
            machine.advance(run, {1: 9 + len(written)})
    assert written == [RecordId(3, 2), RecordId(3, 3), RecordId(7, 0), RecordId(7, 1)]


def test_ids_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RECOVERY_IDS_MAX", 2)
    machine = CorrectedDelivery("out", None, [0, 0], [9, 9])
    machine.found(RecordId(1, 0))
    machine.found(RecordId(1, 1))
    with pytest.raises(ConfigurationError, match="progress topic was lost"):
        machine.found(RecordId(1, 2))


def test_a_rejected_run_is_cut_until_it_is_one_record() -> None:
    machine = fresh()
    run = present(machine.plan(2, [(2, 9)], 9))
    assert machine.rejected(run, {0: 10, 1: 10, 2: 99, 5: 10, 8: 10})
    run = present(machine.plan(2, [(2, 9)], 9))
    assert run.slices == (Slice(2, 0, 2),), "up to the largest"
    machine.advance(run, None)
    run = present(machine.plan(2, [(2, 9)], 9))
    assert run.slices == (Slice(2, 2, 9),), "the next one is whole again"
    assert machine.rejected(run, {0: 99, 1: 10})
    run = present(machine.plan(2, [(2, 9)], 9))
    assert (run.slices, machine.form) == ((Slice(2, 2, 3),), Form.RECORDS), "alone"


def test_de8_a_run_is_cut_where_notices_begin_and_end_and_they_go_together() -> None:
    machine = fresh()
    run = present(machine.plan(2, [(2, 9)], 9))
    sizes = dict.fromkeys((0, 1, 3, 4, 8), 10)
    assert machine.rejected(run, sizes, {3, 4})
    run = present(machine.plan(2, [(2, 9)], 9))
    assert (run.slices, machine.form) == ((Slice(2, 0, 3),), Form.RECORDS)
    machine.advance(run, None)
    run = present(machine.plan(2, [(2, 9)], 9))
    assert machine.rejected(run, {0: 10, 1: 10, 5: 10}, {0, 1})
    run = present(machine.plan(2, [(2, 9)], 9))
    assert run.slices == (Slice(2, 3, 8),)
    for form in (Form.REJECTED, Form.CUT):
        assert machine.rejected(run, {0: 10, 1: 10}, {0, 1})
        assert (machine.form, machine.plan(2, [(2, 9)], 9)) == (form, run)
    assert not machine.rejected(run, {0: 10, 1: 10}, {0, 1})


def test_records_that_are_too_large_together_only_are_cut_in_the_middle() -> None:
    machine = fresh()
    run = present(machine.plan(2, [(2, 9)], 9))
    assert machine.rejected(run, {7: 10, 8: 11})
    run = present(machine.plan(2, [(2, 9)], 9))
    assert run.slices == (Slice(2, 0, 4),)


def test_what_is_rejected_alone_goes_to_its_topic_whole_then_cut_then_nothing_helps() -> None:
    machine = fresh()
    run = present(machine.plan(2, [(2, 9)], 1))
    forms = []
    for _ in range(3):
        forms.append((machine.rejected(run, {0: 99}), machine.form))
        assert machine.plan(2, [(2, 9)], 9) == run
    assert forms == [(True, Form.REJECTED), (True, Form.CUT), (False, Form.CUT)]
    machine.advance(run, {REJECTED: 5})
    assert machine.form is Form.RECORDS
    run = present(machine.plan(2, [(2, 9)], 9))
    assert run.slices == (Slice(2, 1, 9),)
    assert machine.progress(run, 7).positions == ((0, 0), (1, 0), (REJECTED, 5))


def test_a_topic_of_rejected_results_may_be_new_or_made_anew() -> None:
    older = DeliveryProgress("out", 2, 3, ((0, 5), (1, 6)), 1)
    assert CorrectedDelivery("out", older, [0, 0, 4], [9, 9, 9]).read_from == (5, 6, 4)
    assert CorrectedDelivery("out", progress(), [0, 0, 0], [9, 9, 1]).read_from == (5, 6, 1)


@pytest.mark.parametrize(
    ("others_write", "is_former", "expected"),
    [
        (False, False, False),
        (False, None, False),
        (False, True, True),
        (True, False, True),
        (True, None, True),
        (True, True, True),
    ],
)
def test_de15_only_what_no_person_can_correct_is_rejected(
    others_write: bool, is_former: bool | None, expected: bool
) -> None:
    assert may_reject(others_write=others_write, is_former=is_former) == expected
