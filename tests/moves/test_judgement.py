"""Each judge accepts what is right, and finds what was planted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chaos.judgement import USUAL_LIVE_MS_MAX, Seen
from demo.comparing import Delivered, Result, compare
from moves import judgement
from moves.judgement import Bound, Bounds, Struck, bound_of
from moves.schedule import Party
from moves.traffic import Sighting, answer

BOUNDS = Bounds(usual_ms=1_000, max_delay_ms=3_000)
SENT = [
    Sighting(car=1, segment=4, speed=30, time_ms=10_000),
    Sighting(car=1, segment=4, speed=40, time_ms=10_999),
    Sighting(car=2, segment=4, speed=50, time_ms=11_000),
    Sighting(car=3, segment=2, speed=60, time_ms=10_500),
    Sighting(car=3, segment=2, speed=60, time_ms=12_000),
]


def right() -> list[Delivered]:
    """Return what a consumer of the corrected topic gets that has all of the windows until
    12 000.
    """
    found = answer(SENT, 12_000, 250, 2)
    return [
        Delivered((bucket, position), row, 0)
        for bucket, rows in sorted(found.items())
        for position, row in enumerate(rows)
    ]


def wrong(delivered: Sequence[Delivered]) -> list[str]:
    return judgement.wrong_results(compare(answer(SENT, 12_000, 250, 2), delivered))


def test_a_window_has_what_was_seen_before_its_end() -> None:
    found = answer(SENT, 12_000, 250, 1)
    assert found == {
        44: [
            Result(
                '{"cars": 1, "segment": 2, "sightings": 1, "speeds": 60}',
                11_000,
                b'{"segment":2}',
                0,
            ),
            Result(
                '{"cars": 1, "segment": 4, "sightings": 2, "speeds": 70}',
                11_000,
                b'{"segment":4}',
                0,
            ),
        ],
        48: [
            Result(
                '{"cars": 1, "segment": 4, "sightings": 1, "speeds": 50}',
                12_000,
                b'{"segment":4}',
                0,
            )
        ],
    }
    assert answer(SENT, 13_000, 250, 1).keys() == {44, 48, 52}, (
        "windows after the last are left out"
    )


def test_the_right_results_are_accepted_and_each_planted_fault_is_found() -> None:
    rows = right()
    assert wrong(rows) == []
    assert "missing 1, duplicated 0" in wrong(rows[1:])[0]
    assert "missing 0, duplicated 1" in wrong([*rows, rows[0]])[0]
    other = rows[0].result._replace(value=rows[0].result.value.replace("60", "61"))
    assert "wrong 1" in wrong([rows[0]._replace(result=other), *rows[1:]])[0]
    strange = rows[0]._replace(identifier=(45, 0))
    assert "wrong 1" in wrong([*rows, strange])[0]
    same = [each._replace(result=each.result._replace(partition=None)) for each in rows]
    assert "out of order 1" in wrong([same[1], same[0], same[2]])[0]
    assert wrong([]) != []


def test_nothing_where_nothing_must_be_is_no_proof() -> None:
    assert judgement.wrong_results(compare({}, [])) != []


@pytest.mark.parametrize(
    ("party", "runs_on", "bound"),
    [
        (Party.BUYERS_NODE, {"north.0"}, Bound.NODE),
        (Party.BUYERS_NODE, {"south.0"}, Bound.USUAL),
        (Party.BUYERS_NODE, {"north.0", "south.0"}, Bound.NODE),
        (Party.SELLERS_NODE, {"south.0"}, Bound.NODE),
        (Party.SELLERS_NODE, {"north.0"}, Bound.USUAL),
        (Party.SELLERS_AGENT, {"south.0"}, Bound.USUAL),
        (Party.BUYERS_AGENT, {"north.0"}, Bound.USUAL),
        (Party.BUYERS_BROKER, {"north.0"}, Bound.USUAL),
        (Party.SELLERS_BROKER, {"south.0"}, Bound.USUAL),
        (Party.KAFKA, {"south.0"}, Bound.BROKER),
    ],
)
def test_only_who_runs_the_stage_or_keeps_the_topics_holds_results_up(
    party: Party, runs_on: set[str], bound: Bound
) -> None:
    assert bound_of(party, runs_on) is bound


def test_a_result_has_what_is_usual_and_max_delay() -> None:
    seen = [Seen(10_000, 14_000), Seen(20_000, 24_001)]
    assert judgement.late(seen, BOUNDS, [], 0) == [seen[1]]
    assert judgement.late(seen, BOUNDS, [], 20_001) == [], "what came before is not judged"
    assert judgement.late_in_words([seen[1]], BOUNDS, []) == [
        "the results of 20000 came after 4.0 s, allowed are 4.0 s"
    ]


def test_a_machine_that_is_slow_without_movements_does_not_make_the_bound_wide() -> None:
    assert Bounds(90_000, 3_000).plain_ms == USUAL_LIVE_MS_MAX + 3_000


def test_who_does_not_run_the_stage_dies_without_a_longer_bound() -> None:
    kills = [Struck(10_500, Bound.USUAL)]
    assert judgement.late([Seen(10_000, 14_001)], BOUNDS, kills, 0) != []


@pytest.mark.parametrize(("bound", "back_ms"), [(Bound.NODE, 30_000), (Bound.BROKER, 45_000)])
def test_a_death_that_holds_results_up_has_its_time_and_no_more(bound: Bound, back_ms: int) -> None:
    kills = [Struck(100_000, bound)]
    last_ms = 100_000 + back_ms + 4_000
    in_time = [Seen(99_500, last_ms), Seen(110_000, last_ms), Seen(100_000 + back_ms, last_ms)]
    assert judgement.late(in_time, BOUNDS, kills, 0) == []
    too_late = [
        Seen(99_500, last_ms + 1),
        Seen(110_000, last_ms + 1),
        Seen(100_000 + back_ms + 1, last_ms + 2),
        Seen(90_000, 99_999),
    ]
    assert judgement.late(too_late, BOUNDS, kills, 0) == too_late, "the last came before the kill"


def test_the_latest_result_is_that_of_the_time_in_which_it_came() -> None:
    seen = [Seen(1_000, 9_000), Seen(9_000, 10_500), Seen(9_500, 12_000)]
    assert judgement.latest_ms(seen, 10_000, 12_000) == 1_500
    assert judgement.latest_ms(seen, 20_000, 30_000) == 0
    assert judgement.usual_ms(seen, 9_000, 9_500) == [1_500]


def movement(name: str, begins: str, ends: str | None, price: int = 10) -> dict[str, Any]:
    return {"movement": name, "from": begins, "to": ends, "price_micro": price}


def test_a_late_result_belongs_to_the_movement_that_began_before_it_came() -> None:
    late = [Seen(1_000, 4_999), Seen(5_000, 9_000), Seen(5_500, 9_100), Seen(0, 999)]
    assert judgement.moves_of(late, [1_000, 5_000, 9_000]) == {-1, 0, 2}


def test_the_book_is_right_or_says_what_is_not() -> None:
    rows = [
        movement("a", "2026-12-01T10:00:00.000Z", "2026-12-01T10:00:05.000Z"),
        movement("b", "2026-12-01T10:00:05.000Z", None),
    ]
    assert judgement.wrong_book(rows, {"sum_nano": 0}, (6, 20)) == []
    (text,) = judgement.wrong_book(rows, {"sum_nano": 3}, (6, 20))
    assert text == "all balances together are 3, not 0"
    (text,) = judgement.wrong_book(rows, {"sum_nano": 0}, (11, 20))[:1]
    assert text == "a has price 10, not 11 to 20"


def test_time_that_is_paid_twice_is_found() -> None:
    rows = [
        movement("a", "2026-12-01T10:00:00.000Z", "2026-12-01T10:00:05.000Z"),
        movement("b", "2026-12-01T10:00:04.999Z", "2026-12-01T10:00:09.000Z"),
        movement("c", "2026-12-01T10:00:10.000Z", None),
        movement("d", "2026-12-01T10:00:11.000Z", "2026-12-01T10:00:12.000Z"),
    ]
    assert [
        text.split(",")[0] for text in judgement.wrong_book(rows, {"sum_nano": 0}, (6, 20))
    ] == [
        "b began at 2026-12-01T10:00:04.999Z",
        "d began at 2026-12-01T10:00:11.000Z",
    ]
