"""When a registry is asked again for an id that it did not have."""

from __future__ import annotations

from anabranch.protocol.edge.schema_lookups import (
    ASK_AGAIN_FIRST_MS,
    ASK_AGAIN_MAX_MS,
    UNKNOWN_MAX,
    SchemaLookups,
)


def test_pauses_between_questions_grow_up_to_a_limit() -> None:
    lookups = SchemaLookups()
    pauses = list[int]()
    now_ms = 0
    assert lookups.answered_lately(7, now_ms) == ""
    while not pauses or pauses[-1] < ASK_AGAIN_MAX_MS:
        pauses.append(lookups.unknown(7, "not there", now_ms))
        assert lookups.answered_lately(7, now_ms + pauses[-1] - 1) == "not there"
        now_ms += pauses[-1]
        assert lookups.answered_lately(7, now_ms) == ""
        assert lookups.answered_lately(8, now_ms) == ""
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert lookups.unknown(7, "not there", now_ms) == ASK_AGAIN_MAX_MS


def test_what_was_found_is_forgotten() -> None:
    lookups = SchemaLookups()
    lookups.unknown(7, "not there", 0)
    assert lookups.found(7)
    assert not lookups.found(7)
    assert lookups.answered_lately(7, 0) == ""
    assert lookups.unknown(7, "not there", 0) == ASK_AGAIN_FIRST_MS


def test_no_more_than_so_many_are_remembered_the_oldest_answer_is_forgotten() -> None:
    lookups = SchemaLookups()
    for number in range(UNKNOWN_MAX):
        lookups.unknown(number, "not there", 0)
    lookups.unknown(0, "not there", 1_000)
    assert lookups.answered_lately(1, 0) == "not there"
    lookups.unknown(-1, "not there", 1_000)
    assert lookups.answered_lately(1, 0) == "", "its answer was the oldest"
    assert lookups.answered_lately(0, 1_000) == "not there"
