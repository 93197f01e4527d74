"""The reading of a source's log passes what is right, and finds each fault that it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkers.ingestion import (
    Arrival,
    Content,
    Replay,
    Rules,
    Taken,
    check_left_out,
    check_letters,
    check_order,
    replay,
    senders,
)

RULES = Rules(
    width_ms=100, out_of_orderness_ms=10, idle_ms=500, source_idle_ms=None, is_reassigned=False
)


def row(time_ms: int, at_ms: int | None = None) -> Arrival:
    return Arrival(time_ms if at_ms is None else at_ms, time_ms, (time_ms, 1))


ARRIVALS = {
    0: [row(150), row(250), Arrival(260, None, None), row(420), row(800), row(900), row(1_000)],
    1: [row(120), Arrival(430, 411, None, is_heartbeat=True), row(100, 1_050)],
}
"""Partition 1 says at 430 ms that it has nothing, then nothing for more than 500 ms, and then
something old.
"""
RECORDS = [
    Taken(160, 161, {0: (1, 150, 0), 1: (1, 120, 0)}, 1, [(150, 1), (120, 1)]),
    Taken(440, 441, {0: (4, 420, 0), 1: (2, 411, 0)}, 4, [(250, 1), (420, 1)]),
    Taken(1_010, 1_011, {0: (7, 1_000, 0), 1: (2, 411, 0)}, 9, [(800, 1), (900, 1), (1_000, 1)]),
    Taken(1_060, 1_061, {0: (7, 1_000, 0), 1: (3, 411, 0)}, 9, []),
]


def judged(records: list[Taken] = RECORDS, rules: Rules = RULES) -> Replay:
    return replay("a", ARRIVALS, records, rules)


def test_a_right_log_passes_and_says_what_the_stream_must_be() -> None:
    found = judged()
    assert found.wrong == []
    assert found.buckets == {
        2: [(120, 1), (150, 1)],
        3: [(250, 1)],
        5: [(420, 1)],
        8: [(800, 1)],
        9: [(900, 1)],
        10: [(1_000, 1)],
    }
    assert found.late == {(1, 2)}
    assert found.dead == [(1, (0, 2)), (3, (1, 2))]


def test_late_rows_may_be_kept_with_the_first_time_that_is_open() -> None:
    records = [*RECORDS[:3], replace(RECORDS[3], rows=[(901, 1)])]
    found = judged(records, replace(RULES, is_reassigned=True))
    assert (found.wrong, found.late, found.buckets[10]) == ([], set(), [(1_000, 1), (901, 1)])
    assert judged(records).wrong, "a dead letter in the stream"


@pytest.mark.parametrize(
    ("number", "changes", "text"),
    [
        (1, {"rows": [(250, 1)]}, "record 1 holds"),
        (1, {"rows": [(250, 1), (420, 1), (420, 1)]}, "record 1 holds"),
        (3, {"rows": [(100, 1)]}, "record 3 holds"),
        (1, {"positions": {0: (5, 800, 0), 1: (2, 411, 0)}}, "record 1 holds"),
        (1, {"positions": {0: (4, 250, 0), 1: (2, 411, 0)}}, "as the largest time of 0"),
        (1, {"positions": {0: (9, 420, 0), 1: (2, 411, 0)}}, "has read 0 to 9"),
        (2, {"positions": {0: (0, 150, 0), 1: (2, 411, 0)}}, "has read 0 to 0"),
        (0, {"closed": 2}, "record 0 closes up to 2"),
        (1, {"closed": 5}, "record 1 closes up to 5"),
        (2, {"closed": 3}, "record 2 closes up to 3, from 4"),
        (2, {"decided_ms": 700}, "record 2 closes up to 9"),
        (3, {"closed": 10}, "record 3 closes up to 10"),
    ],
)
def test_a_wrong_log_is_found(number: int, changes: dict[str, object], text: str) -> None:
    records = list(RECORDS)
    records[number] = replace(records[number], **changes)  # type: ignore[arg-type]
    assert any(text in line for line in judged(records).wrong), judged(records).wrong


def test_a_partition_is_not_idle_because_its_writer_does_not_read_it() -> None:
    unread = {**ARRIVALS, 1: [*ARRIVALS[1][:2], Arrival(450, 440, (440, 1))]}
    late = [*RECORDS[:2], replace(RECORDS[2], decided_ms=1_460, appended_ms=1_461)]
    assert judged(late[:3]).wrong == []
    assert any("closes up to 9" in line for line in replay("a", unread, late, RULES).wrong)


def test_a_partition_speaks_though_its_source_may_leave_it_unread() -> None:
    unread = {**ARRIVALS, 1: [ARRIVALS[1][0]], 0: [*ARRIVALS[0], row(1_100)]}
    passes = [
        RECORDS[0],
        Taken(400, 401, {0: (3, 250, 0), 1: (1, 120, 0)}, 1, [(250, 1)]),
        Taken(1_200, 1_201, {0: (3, 250, 0), 1: (1, 120, 0)}, 2, []),
    ]
    assert replay("a", unread, passes, replace(RULES, leaves_unread=True)).wrong == []
    assert replay("a", unread, passes, RULES).wrong, "nobody but a look tells of it"
    nothing = {**unread, 0: ARRIVALS[0][:3]}
    assert replay("a", nothing, passes, replace(RULES, leaves_unread=True)).wrong


def test_what_a_partition_brings_that_was_found_late_is_kept_until_it_is_beyond_that_place() -> (
    None
):
    late = {0: ARRIVALS[0][:4], 1: [row(120, 430), row(450), row(130, 460)]}
    records = [
        Taken(160, 161, {0: (1, 150, 0)}, 1, [(150, 1)]),
        Taken(425, 426, {0: (4, 420, 0)}, 4, [(250, 1), (420, 1)]),
        Taken(440, 441, {0: (4, 420, 0), 1: (1, 120, 4)}, 4, [(401, 1)]),
        Taken(455, 456, {0: (4, 420, 0), 1: (2, 450, 4)}, 4, [(450, 1)]),
        Taken(465, 466, {0: (4, 420, 0), 1: (3, 450, 4)}, 4, []),
    ]
    found = replay("a", late, records, RULES)
    assert (found.wrong, found.late) == ([], {(1, 2)})
    records[2] = replace(records[2], positions={0: (4, 420, 0), 1: (1, 120, 5)})
    assert any(
        "has found 1 after 5, it was after 4" in line
        for line in replay("a", late, records, RULES).wrong
    )


def test_what_comes_of_buckets_that_were_given_up_before_the_first_position_is_late() -> None:
    arrivals = {0: [row(120, 470), row(450, 470)]}
    records = [
        Taken(430, 431, {}, 3, [], given_up=(3,)),
        Taken(475, 476, {0: (2, 450, 0)}, 3, [(450, 1)]),
    ]
    found = replay("a", arrivals, records, RULES)
    assert (found.wrong, found.late) == ([], {(0, 0)})
    records[1] = replace(records[1], positions={0: (2, 450, 3)})
    assert any(
        "has found 0 after 3, it was after 0" in line
        for line in replay("a", arrivals, records, RULES).wrong
    )


def test_without_rules_for_idleness_every_partition_counts() -> None:
    assert any(
        "record 2 closes up to 9, from 4 on it may up to 4" in line
        for line in judged(rules=replace(RULES, idle_ms=None)).wrong
    )


def test_a_source_that_is_silent_as_a_whole_goes_on_with_the_time_if_the_rules_say_so() -> None:
    rules, arrivals = replace(RULES, source_idle_ms=300), {0: [row(250)]}
    begun = Taken(260, 261, {0: (1, 250, 0)}, 2, [(250, 1)])
    for decided_ms, closed, is_right in (
        (560, 2, True),
        (660, 3, True),
        (960, 6, True),
        (660, 4, False),
        (500, 3, False),
    ):
        found = replay(
            "a",
            arrivals,
            [begun, Taken(decided_ms, decided_ms + 1, {0: (1, 250, 0)}, closed, [])],
            rules,
        )
        assert (found.wrong == []) == is_right, (decided_ms, closed)
    assert replay("a", arrivals, [begun, Taken(960, 961, {0: (1, 250, 0)}, 6, [])], RULES).wrong


def test_with_a_wrong_clock_the_times_of_the_log_count() -> None:
    assert judged([replace(record, decided_ms=None) for record in RECORDS]).wrong == []


def test_a_dead_letter_comes_before_the_record_that_counts_it_as_read() -> None:
    found = judged()
    assert check_order("a", found, {(0, 2): 4, (1, 2): 9}, [1, 5, 7, 10]) == []
    assert len(check_order("a", found, {(0, 2): 6, (1, 2): 9}, [1, 5, 7, 10])) == 1
    assert len(check_order("a", found, {(1, 2): 9}, [1, 5, 7, 10])) == 1


def test_a_source_that_was_given_up_before_it_sent_anything_closes_no_more_than_that() -> None:
    given_up = Taken(10, 11, {}, 3, [], given_up=(3,))
    assert judged([given_up]).wrong == []
    assert judged([replace(given_up, closed=4)]).wrong


def test_a_dead_letter_holds_what_was_sent() -> None:
    head = senders((("trace", b"1"), ("Anabranch-Offset", b"7"), ("empty", None)))
    assert [name for name, _ in head] == ["trace", "sender-Anabranch-Offset", "empty"]
    bad = Content("in.a", b"key", b"{", head, "not_json")
    none = Content("in.a", None, None, (), "null_value")
    sent = {(0, 2): bad, (1, 2): none}
    assert check_letters("a", sent.items(), sent) == []
    assert check_letters("a", [*sent.items(), *sent.items()], sent) == [], "at least once"
    for spoilt in (
        bad._replace(key=None),
        bad._replace(value=b""),
        bad._replace(value=None),
        bad._replace(topic="in.b"),
        bad._replace(headers=head[1:]),
        bad._replace(headers=head[::-1]),
        bad._replace(reason="late"),
    ):
        assert len(check_letters("a", [((0, 2), spoilt)], sent)) == 1
    assert check_letters("a", [((1, 2), none._replace(value=b""))], sent), "none is no empty one"
    assert check_letters("a", [((0, 3), bad)], sent), "nothing stands there"


def test_what_was_left_out_before_a_restart_is_not_waited_for_again() -> None:
    before = replace(RECORDS[2], left_out=frozenset({1}))
    begun = replace(before, appended_ms=1_030, begun_ms=1_020)
    assert check_left_out("a", ARRIVALS, [before, begun]) == []
    forgets = replace(begun, left_out=frozenset())
    assert check_left_out("a", ARRIVALS, [before, forgets])
    assert check_left_out("a", ARRIVALS, [before, begun, replace(forgets, appended_ms=1_040)])
    late = replace(forgets, appended_ms=1_050)
    assert check_left_out("a", ARRIVALS, [before, late]) == [], "something came"
    nobody = {0: ARRIVALS[0], 1: ARRIVALS[1][:2]}
    assert check_left_out("a", nobody, [before, late])
    much_later = replace(forgets, appended_ms=1_800)
    assert check_left_out("a", nobody, [before, much_later]) == [], "it may not have looked"
    same = replace(forgets, begun_ms=before.begun_ms)
    assert check_left_out("a", ARRIVALS, [before, same]) == [], "it did not begin"
    both = replace(before, left_out=frozenset({0, 1}))
    assert check_left_out("a", nobody, [both, late]) == [], "another shard has not been heard yet"


LEADERS = {0: [row(150), row(120, 200), row(9_000, 250), row(260)]}
"""A new leader behind the one before, one far in front, and one with a clock that is right."""
DATED = replace(RULES, idle_ms=None, is_arrival=True, ahead_ms=1_000)


def dated(rows: list[tuple[int, int]], mark_ms: int = 1_300) -> list[str]:
    arrivals = [*LEADERS[0]]
    arrivals[2] = replace(arrivals[2], is_beyond=True)
    records = [
        Taken(210, 211, {0: (2, 150, 0)}, 1, [(150, 1), (150, 1)]),
        Taken(300, 301, {0: (4, mark_ms, 0)}, 1, rows),
    ]
    return replay("a", {0: arrivals}, records, DATED).wrong


def test_no_arrival_runs_back_and_one_beyond_the_limit_counts_as_the_limit() -> None:
    assert dated([(1_300, 1), (1_300, 1)]) == []
    assert dated([(1_300, 1), (260, 1)]) != []
    (wrong,) = dated([(9_000, 1), (9_000, 1)], 9_000)
    assert "where the limit was from 1250 to 1301" in wrong


def test_only_an_operator_goes_on_in_a_topic_that_was_created_again() -> None:
    arrivals = {0: [row(150), row(250)], 100: [row(260)]}
    goes_on = Taken(270, 271, {100: (0, 150, 0)}, 1, [], given_up=(2,))
    records = [
        Taken(160, 161, {0: (1, 150, 0)}, 1, [(150, 1)]),
        goes_on,
        Taken(280, 281, {100: (1, 260, 0)}, 2, [(260, 1)]),
    ]
    found = replay("a", arrivals, records, RULES, predecessors={100: 0})
    assert found.wrong == []
    assert found.missing == {(0, 1)}
    records[1] = replace(goes_on, given_up=())
    (wrong,) = replay("a", arrivals, records, RULES, predecessors={100: 0}).wrong
    assert "goes on in 100, though nobody gave up 0" in wrong
