"""An excuse is bound to the target, the time and the number of faults: beyond each of them it
is none.
"""

from __future__ import annotations

import json
import re

import pytest

from anabranch.local.state_file import ProcessRow
from chaos.allowed import ALLOWED
from chaos.complaints import Complaint
from chaos.excuses import Allowed, Ended, EndsSeen, needless_ends, target_of, unexplained
from chaos.judgement import Injected
from chaos.schedule import BROKER, REDIS, Kind

A, B = "ingestion-a.log", "ingestion-b.log"


def fault(
    kind: Kind,
    target: str = "ingestion/a",
    begun_ms: int = 10_000,
    ended_ms: int = 20_000,
    number: int = 0,
) -> Injected:
    return Injected(number, kind, target, begun_ms, ended_ms)


def test_a_log_is_of_a_process() -> None:
    assert target_of("processing-tolls.0.log") == "processing/tolls.0"
    assert target_of("processing-tolls.0.log.1") == "processing/tolls.0"
    assert target_of("consistency_manager-toll-road.copy-7.log") == "consistency_manager/toll-road"
    assert target_of("kafka.log") == BROKER
    assert target_of("up.log") == ""


OWN = Allowed(
    re.compile("gone"),
    "why",
    own=frozenset({Kind.CUT}),
    anywhere=frozenset({Kind.BROKER_KILL}),
    after_s=30,
    most=2,
)


@pytest.mark.parametrize(
    ("complaints", "faults", "count"),
    [
        ([Complaint(A, "gone", 15_000)], [fault(Kind.CUT)], 0),
        ([Complaint(A, "gone", 50_000)], [fault(Kind.CUT)], 0),
        ([Complaint(A, "gone", 50_001)], [fault(Kind.CUT)], 1),
        ([Complaint(A, "gone", 8_999)], [fault(Kind.CUT)], 1),
        ([Complaint(A, "gone", None)], [fault(Kind.CUT)], 1),
        ([Complaint(B, "gone", 15_000)], [fault(Kind.CUT)], 1),
        ([Complaint(B, "gone", 15_000)], [fault(Kind.BROKER_KILL, BROKER)], 0),
        ([Complaint(A, "gone", 15_000)], [fault(Kind.KILL)], 1),
        ([Complaint(A, "gone", 15_000)] * 2, [fault(Kind.CUT)], 0),
        ([Complaint(A, "gone", 15_000)] * 3, [fault(Kind.CUT)], 1),
        ([Complaint(A, "gone", 15_000)] * 3, [fault(Kind.CUT), fault(Kind.CUT, number=1)], 0),
        ([Complaint(A, "new", 15_000)], [fault(Kind.CUT)], 1),
    ],
    ids=[
        "within",
        "soon after",
        "too late",
        "before",
        "no time",
        "another one",
        "broker",
        "kind",
        "twice",
        "too often",
        "two faults",
        "unknown",
    ],
)
def test_only_a_fault_of_its_target_in_its_time_explains_an_error(
    complaints: list[Complaint], faults: list[Injected], count: int
) -> None:
    assert len(unexplained(complaints, [OWN], faults)) == count


def test_what_needs_no_fault_is_counted_too() -> None:
    entry = Allowed(re.compile("known"), "why", most=2)
    assert (
        unexplained(
            [Complaint(A, "known 1"), Complaint(A, "known 2"), Complaint(B, "known")], [entry], []
        )
        == []
    )
    assert unexplained([Complaint(A, f"known {number}") for number in range(4)], [entry], []) == [
        f"{A}: known 2 (2 times)"
    ]


def test_a_start_explains_so_much_until_all_is_ready() -> None:
    """Then only a fault does."""
    text = "ERROR [QuorumController id=1] controller event queue overloaded. Timed out heartbeat"
    complaints = [Complaint("kafka.log", f"{text} {number}", 5_000) for number in range(3)]
    assert unexplained(complaints[:2], ALLOWED, [], 10_000) == []
    assert len(unexplained(complaints, ALLOWED, [], 10_000)) == 1
    assert len(unexplained(complaints[:1], ALLOWED, [], 5_000)) == 1
    assert len(unexplained([complaints[0]._replace(at_ms=None)], ALLOWED, [], 10_000)) == 1
    assert (
        len(unexplained([Complaint(A, "ERROR of another kind", 5_000)], ALLOWED, [], 10_000)) == 1
    )


def test_the_java_of_a_killed_node_tells_of_its_queries_right_after() -> None:
    text = "Query s.0 terminated with error: ConnectionError: the planner closed the connection"
    line = json.dumps({"event": "spark", "level": "error", "text": text})
    node, killed = "processing/north.0", Kind.KILL
    complaint = Complaint("processing-north.0.log", line, 11_000)
    faults = [fault(killed, node)]
    assert unexplained([complaint] * 4, ALLOWED, faults) == []
    assert len(unexplained([complaint] * 5, ALLOWED, faults)) == 1
    assert len(unexplained([complaint._replace(at_ms=40_000)], ALLOWED, faults)) == 1
    assert len(unexplained([complaint], ALLOWED, [fault(Kind.PAUSE, node)])) == 1


EXIT = Complaint(A, json.dumps({"level": "error", "exit_code": 3, "event": "stopped"}), 15_000)


def test_who_is_fenced_was_replaced() -> None:
    assert unexplained([EXIT], ALLOWED, [fault(Kind.ZOMBIE)]) == []
    assert (
        len(unexplained([EXIT], ALLOWED, [fault(kind) for kind in Kind if kind is not Kind.ZOMBIE]))
        == 1
    )
    assert len(unexplained([EXIT], ALLOWED, [fault(Kind.ZOMBIE, "ingestion/b")])) == 1
    assert len(unexplained([EXIT, EXIT], ALLOWED, [fault(Kind.ZOMBIE)])) == 1


def test_the_allow_list_is_short_and_says_why() -> None:
    assert len(ALLOWED) <= 20
    assert all(entry.why for entry in ALLOWED)
    assert sum(not entry.needs_fault() for entry in ALLOWED) == 1
    everything = [fault(kind) for kind in Kind]
    for text in (
        json.dumps(
            {"event": "stopped", "level": "error", "exit_code": 1, "error": "KeyError: 'x'"}
        ),
        json.dumps({"event": "alarm", "level": "error", "kind": "digest_mismatch"}),
        "Traceback",
    ):
        assert len(unexplained([Complaint(A, text, 15_000)], ALLOWED, everything)) == 1


@pytest.mark.parametrize(
    ("ended", "faults", "count"),
    [
        ([("ingestion/a", 11_000)], [fault(Kind.KILL)], 0),
        ([("ingestion/a", 11_000), ("ingestion/a", 12_000)], [fault(Kind.KILL)], 1),
        ([("ingestion/a", 11_000), ("ingestion/a", 12_000)], [fault(Kind.KILL_TWICE)], 0),
        ([("ingestion/b", 11_000)], [fault(Kind.KILL)], 1),
        ([("ingestion/a", 110_001)], [fault(Kind.KILL)], 1),
        ([("ingestion/a", 8_000)], [fault(Kind.KILL)], 1),
        ([("ingestion/a", 11_000), ("delivery/o", 12_000)], [fault(Kind.BROKER_KILL, BROKER)], 0),
        ([("ingestion/a", 11_000), ("ingestion/a", 12_000)], [fault(Kind.BROKER_KILL, BROKER)], 1),
        ([("proxy/proxy", 11_000)], [fault(Kind.BROKER_KILL, BROKER)], 1),
        ([("ingestion/a", 11_000)], [fault(Kind.REDIS_EMPTY, "redis/redis")], 1),
        ([("ingestion/a", 11_000)], [], 1),
    ],
    ids=[
        "killed",
        "twice",
        "killed twice",
        "another one",
        "much later",
        "before",
        "broker",
        "too often",
        "not a service",
        "no end",
        "no fault",
    ],
)
def test_a_process_ends_no_more_often_than_faults_explain(
    ended: list[tuple[str, int]], faults: list[Injected], count: int
) -> None:
    assert len(needless_ends([Ended(*each) for each in ended], faults)) == count


def test_every_end_is_seen_once() -> None:
    seen = EndsSeen()

    def look(now_ms: int, restarts: int, state: str) -> list[int]:
        row = ProcessRow(
            "ingestion",
            "a",
            7 if state in {"running", "starting"} else None,
            restarts=restarts,
            state=state,
        )
        seen.look([row], now_ms)
        return [end.at_ms for end in seen.ended]

    assert look(1, 0, "starting") == look(2, 0, "running") == []
    assert (
        look(3, 0, "restarting")
        == look(4, 0, "restarting")
        == look(5, 1, "starting")
        == look(6, 1, "running")
        == [3]
    )
    assert look(7, 3, "starting") == [3, 7, 7], "two, since it was looked at"
    assert look(8, 3, "failed") == [3, 7, 7, 8]
    seen.look([ProcessRow("kafka", "kafka", None, restarts=1, state="restarting")], 9)
    seen.look([ProcessRow("kafka", "kafka", 8, restarts=1, state="running")], 10)
    assert [end for end in seen.ended if end.target == BROKER] == [Ended(BROKER, 9)], (
        "a server counts when it is started"
    )
    seen.ended.pop()
    assert look(11, 3, "stopped") == [3, 7, 7, 8], "the orderly end of the run is none"


def test_a_budget_is_used_by_the_ends_that_need_it() -> None:
    faults = [
        fault(Kind.KILL, ended_ms=11_000),
        fault(Kind.KILL, begun_ms=60_000, ended_ms=60_000, number=1),
    ]
    assert needless_ends([Ended("ingestion/a", 61_000), Ended("ingestion/a", 62_000)], faults) == []
    assert (
        len(
            needless_ends(
                [Ended("ingestion/a", at_ms) for at_ms in (61_000, 62_000, 63_000)], faults
            )
        )
        == 1
    )


@pytest.mark.parametrize(
    ("text", "kind", "target"),
    [
        ("errors.Fenced: s: epoch 1 of replica 0 was ended by epoch 9", Kind.MOVE, "processing/n"),
        ("errors.Fenced: s: epoch 1 of replica 0 was ended by epoch 9", Kind.MOVE, "processing/m"),
        ("send to s, 1 records failed: _PURGE_QUEUE: Local: Purged in queue", Kind.BROKER_KILL, ""),
    ],
)
def test_a_query_that_ended_is_told_by_spark(text: str, kind: Kind, target: str) -> None:
    told = Complaint("processing-n.log", f'{{"event": "spark", "text": "{text}"}}', 15_000)
    assert unexplained([told], ALLOWED, [fault(kind, target or BROKER)]) == []
    assert len(unexplained([told], ALLOWED, [fault(Kind.REDIS_KILL, REDIS)])) == 1
