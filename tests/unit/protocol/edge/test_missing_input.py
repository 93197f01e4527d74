"""Input that is gone before its source has read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.edge.missing_input import (
    INPUT_AGAIN_MS,
    NAMED_MAX,
    InputState,
    InputWait,
    Lost,
    MissingInput,
    described,
    given_up_missing,
    missing,
    replaced_topic,
)
from anabranch.protocol.errors import InputAwaited, InputMissing
from anabranch.protocol.log.records import InputPosition

T0, T1 = ("t", 0), ("t", 1)


def at(offset: int, partition: int = 0, topic: str = "t", topic_id: str = "id") -> InputPosition:
    return InputPosition(topic, partition, offset, 1_000, topic_id=topic_id)


def there(first: int, end: int, topic_id: str = "id") -> InputState:
    return InputState({T0: (first, end)}, {"t": topic_id} if topic_id else {})


@pytest.mark.parametrize(
    ("position", "now", "lost", "after"),
    [
        (at(20), there(30, 50), Lost.DELETED, 30),
        (at(20), there(10, 15), Lost.CUT, 15),
        (at(20), there(3, 50, "new"), Lost.REPLACED, 3),
    ],
)
def test_what_cannot_be_read_on_from_is_missing(
    position: InputPosition, now: InputState, lost: Lost, after: int
) -> None:
    assert missing([position], now) == [MissingInput("t", 0, lost, 20, after)]
    (moved,) = given_up_missing((position,), now)
    assert (moved.offset_next, moved.event_time_max_ms) == (after, 1_000)
    assert moved.topic_id == now.topic_ids["t"]
    assert missing([moved], now) == []


@pytest.mark.parametrize(
    ("position", "now"),
    [
        (at(30), there(30, 50)),
        (at(50), there(30, 50)),
        (at(30, topic_id=""), there(30, 50)),
        (at(30), there(30, 50, "")),
        (at(20, topic="gone"), there(30, 50)),
    ],
)
def test_all_else_is_not(position: InputPosition, now: InputState) -> None:
    assert missing([position], now) == []
    assert given_up_missing((position,), now) == (position,)


def test_a_partition_that_a_new_topic_does_not_have_is_left_out() -> None:
    positions = (at(20), at(9, partition=1))
    now = there(0, 5, "new")
    assert [each.lost for each in missing(positions, now)] == [Lost.REPLACED, Lost.REPLACED]
    assert given_up_missing(positions, now) == (at(0, topic_id="new"),)


def test_mi1_a_topic_that_is_gone_or_was_created_again_is_another_one() -> None:
    read = {"t": "1", "u": "2"}
    assert replaced_topic(read, {"u": "2", "t": "1", "v": "3"}) == ""
    assert replaced_topic(read, {"t": "1"}) == "topic u does not exist any more"
    assert replaced_topic(read, {"t": "9", "u": "2"}) == "topic t was created again"
    assert replaced_topic({}, {}) == ""


def test_what_people_read() -> None:
    found = missing([at(20)], there(30, 50))
    assert described("s", found) == (
        "source s waits, since input is missing: t[0]: offsets 20 to 29 were deleted before they"
        " were read, at most 10 records. If it cannot be brought back: 'anabranch give-up s"
        " --missing' goes on without it"
    )
    assert "up to 5 records may be missing" in str(missing([at(20)], there(0, 15))[0])
    assert "an unknown number of records" in str(missing([at(20)], there(0, 15, "new"))[0])
    assert "; and 2 more partitions" in described("s", found * (NAMED_MAX + 2))


OFFSETS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda two: (min(two), max(two)))
IDS = st.sampled_from(["", "a", "b"])


@given(
    st.lists(st.tuples(st.integers(0, 9), IDS), min_size=2, max_size=2),
    st.dictionaries(st.sampled_from([T0, T1]), OFFSETS),
    IDS,
)
def test_mi3_nothing_is_missing_afterwards_and_nothing_else_moves(
    read: list[tuple[int, str]], offsets: dict[tuple[str, int], tuple[int, int]], topic_id: str
) -> None:
    now = InputState(offsets, {"t": topic_id} if topic_id else {})
    positions = tuple(at(offset, i, topic_id=name) for i, (offset, name) in enumerate(read))
    lost = {each.partition for each in missing(positions, now)}
    after = given_up_missing(positions, now)
    assert missing(after, now) == []
    for each in after:
        if each.partition not in lost:
            assert each == positions[each.partition]
        else:
            first, end = offsets["t", each.partition]
            assert first <= each.offset_next <= end


def test_mi4_what_was_missing_stays_so_until_the_source_has_begun_anew() -> None:
    wait = InputWait()
    assert wait.failed(InputAwaited("no answer"), 0)
    assert (wait.why, wait.is_missing) == ("no answer", False)
    assert wait.failed(InputMissing("offsets 3 to 8"), 1)
    assert wait.is_missing
    assert wait.failed(InputAwaited("no answer"), 2)
    assert (wait.why, wait.is_missing) == ("no answer", True)
    assert not wait.failed(InputAwaited("no answer"), 3), "it was said before"
    wait.over()
    assert (wait.why, wait.is_missing) == ("", False)
    assert wait.failed(InputAwaited("no answer"), 4)
    assert not wait.is_missing


def test_mi5_a_source_tries_again_from_its_last_failure_on() -> None:
    wait = InputWait()
    wait.failed(InputAwaited("no answer"), 100)
    assert not wait.is_due(99 + INPUT_AGAIN_MS)
    assert wait.is_due(100 + INPUT_AGAIN_MS)
    wait.failed(InputAwaited("no answer"), 200)
    assert not wait.is_due(199 + INPUT_AGAIN_MS)
