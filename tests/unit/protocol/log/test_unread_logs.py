"""When a log that lost records is opened anew, and which logs may be relied on."""

from __future__ import annotations

from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS, UnreadLogs


def test_a_log_is_known_from_its_first_reading_until_it_loses_records() -> None:
    logs = UnreadLogs()
    assert not logs.is_known("a")
    logs.delayed("a", "no answer")
    assert (logs.is_known("a"), logs.why) == (False, {"a": "no answer"})
    logs.read("a")
    assert (logs.is_known("a"), logs.why) == (True, {})
    logs.delayed("a", "no answer")
    assert (logs.is_known("a"), logs.why) == (True, {"a": "no answer"})
    logs.lost("a", "deleted", 0)
    assert (logs.is_known("a"), logs.why) == (False, {"a": "deleted"})
    logs.delayed("a", "no answer")
    assert not logs.is_known("a")


def test_a_log_is_opened_at_once_and_then_with_pauses() -> None:
    logs = UnreadLogs()
    assert logs.is_due("a", 0)
    opened = []
    for now_ms in range(0, 3 * OPEN_AGAIN_MS + 1, 100):
        if logs.is_due("a", now_ms):
            opened.append(now_ms)
            logs.lost("a", "deleted", now_ms)
    assert opened == [0, 100, OPEN_AGAIN_MS, 2 * OPEN_AGAIN_MS, 3 * OPEN_AGAIN_MS]
    assert logs.is_due("b", 0), "others are read meanwhile"


def test_a_log_that_was_read_again_and_again_loses_records_is_opened_with_pauses() -> None:
    logs = UnreadLogs()
    logs.lost("a", "deleted", 5)
    logs.read("a")
    logs.lost("a", "deleted", 5)
    assert [logs.is_due("a", at_ms) for at_ms in (5, OPEN_AGAIN_MS + 4, OPEN_AGAIN_MS + 5)] == [
        False,
        False,
        True,
    ]
    late_ms = 3 * OPEN_AGAIN_MS
    logs.read("a")
    logs.lost("a", "deleted", late_ms)
    assert logs.is_due("a", late_ms)


def test_a_person_must_act_where_a_log_cannot_be_opened_anew() -> None:
    logs = UnreadLogs()
    logs.read("a")
    logs.lost("a", "overtaken", 0)
    assert logs.stuck == {}
    logs.lost("a", "deleted", 0)
    logs.lost("b", "damaged", 0)
    assert logs.stuck == {"a": "deleted", "b": "damaged"}
    logs.delayed("a", "no answer")
    assert logs.stuck == {"a": "no answer", "b": "damaged"}
    logs.read("a")
    assert logs.stuck == {"b": "damaged"}


def test_a_reason_is_news_until_the_log_is_read() -> None:
    logs = UnreadLogs()
    assert [logs.lost("a", why, 0) for why in ("x", "x", "y", "y")] == [True, False, True, False]
    assert logs.lost("b", "y", 0)
    logs.read("a")
    assert logs.lost("a", "y", 0)


def test_what_is_not_followed_is_forgotten() -> None:
    logs = UnreadLogs()
    logs.lost("a", "deleted", 0)
    logs.lost("a", "deleted", 0)
    logs.dropped("a")
    logs.dropped("a")
    assert (logs.why, logs.stuck, logs.is_due("a", 0)) == ({}, {}, True)
