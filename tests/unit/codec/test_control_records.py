from __future__ import annotations

import dataclasses

import pytest

from anabranch.codec import boundary_records, control_records
from anabranch.codec.catalog import catalog
from anabranch.codec.control_records import ALARM_CHARACTERS_MAX
from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskOutcome,
    AskReply,
    ControlRecord,
    DeliveryProgress,
    Fence,
    Heartbeat,
    Move,
    NodeReport,
    ReplicaLoad,
    Restated,
    SplitStep,
    Step,
    TrimPoint,
    Vote,
)
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import EpochStarted

HEARTBEAT = Heartbeat(
    service="processing",
    name="tolls",
    replica="1",
    epoch=-1,
    state="running",
    bucket=7,
    written_ms=8,
)
PROGRESS = DeliveryProgress(
    output="tolls",
    first_bucket=3,
    last_bucket=9,
    positions=((0, 17), (1, 0)),
    written_ms=5,
    first_position=2,
    next_position=4,
)
BRANCHED = dataclasses.replace(
    HEARTBEAT,
    replica_state="up_failure",
    branch=2,
    checkpoint="000000000017-000001",
    checkpoint_bucket=6,
    corrects=True,
)
FENCE = Fence(
    stage="tolls",
    replica="1",
    epoch=17,
    bucket=9,
    votes=(Vote("0", 3, 10, 2**64 - 1), Vote("1", 17, 9, 0), Vote("2", 5, 10, 2**64 - 1)),
    written_ms=4,
)
ASK = Ask(
    stream="reports", reader="delivery.tolls", number=7, bucket_first=1, bucket_last=9, written_ms=4
)
ANSWER = AskReply(
    stream="reports",
    replica="1",
    reader="delivery.tolls",
    number=7,
    outcome=AskOutcome.UNABLE,
    reason="input is gone",
    written_ms=4,
)
TRIM = TrimPoint(stream="reports", bucket=9, written_ms=4)
RESTATED = Restated(stage="tolls", version=2, after=70, written_ms=4)
SPLIT = SplitStep("tolls.0", Step.WITHDRAWN, 4, attempt=9, reason="bucket 7 differs", bucket=7)
MOVE = Move(stage="tolls", replica="1", node="north.2", written_ms=4)
SCALED = dataclasses.replace(MOVE, only_from="north.0", cause="lost", because="it was silent")
LOAD = ReplicaLoad(
    stage="tolls",
    replica="1",
    state="running",
    leads=True,
    stands_by=False,
    busy_permille=730,
    rows_per_s=4_000,
    behind=2,
    is_cold=True,
    need_permille=910,
)
REPORT = NodeReport(node="north.7", written_ms=4, cores=2, replicas=(LOAD, LOAD))
ALARM = Alarm(kind="digest", stream="tolls", bucket=-1, text="two replicas differ", written_ms=6)


@pytest.mark.parametrize(
    "entry",
    [
        HEARTBEAT,
        BRANCHED,
        FENCE,
        TRIM,
        PROGRESS,
        ALARM,
        ASK,
        ANSWER,
        MOVE,
        SCALED,
        REPORT,
        dataclasses.replace(REPORT, replicas=()),
        RESTATED,
        SPLIT,
        SplitStep("tolls", Step.WANTED, 4),
    ],
)
def test_a_record_comes_back_as_it_was(entry: ControlRecord) -> None:
    assert control_records.decode(control_records.encode(entry)) == entry


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("heartbeat", Heartbeat),
        ("fence", Fence),
        ("trim_point", TrimPoint),
        ("delivery_progress", DeliveryProgress),
        ("alarm", Alarm),
        ("ask", Ask),
        ("ask_reply", AskReply),
        ("move", Move),
        ("restated", Restated),
        ("node_report", NodeReport),
        ("split_step", SplitStep),
    ],
)
def test_the_schema_has_the_fields_of_the_value_in_their_order(name: str, kind: type) -> None:
    assert [field["name"] for field in catalog().newest(name).avro["fields"]] == [
        field.name for field in dataclasses.fields(kind)
    ]


def test_a_text_that_is_too_long_is_cut() -> None:
    found = control_records.decode(
        control_records.encode(dataclasses.replace(ALARM, text="\u20ac" * 1_000_000))
    )
    assert found == dataclasses.replace(ALARM, text="\u20ac" * ALARM_CHARACTERS_MAX)


def test_a_reason_that_is_too_long_is_cut() -> None:
    found = control_records.decode(
        control_records.encode(dataclasses.replace(ANSWER, reason="r" * 1_000_000))
    )
    assert found == dataclasses.replace(ANSWER, reason="r" * ALARM_CHARACTERS_MAX)


def test_reasons_of_moves_are_texts_for_people() -> None:
    """The fault of a store can take more words than a name has."""
    long = dataclasses.replace(MOVE, withdrawn="w" * 1_000, because="b" * 1_000)
    assert control_records.decode(control_records.encode(long)) == long


@pytest.mark.parametrize(
    "entry",
    [
        dataclasses.replace(REPORT, replicas=(dataclasses.replace(LOAD, stage="s" * 250),)),
        dataclasses.replace(REPORT, replicas=(dataclasses.replace(LOAD, state="s" * 250),)),
        dataclasses.replace(HEARTBEAT, name="n" * 250),
        dataclasses.replace(FENCE, replica="r" * 250),
        dataclasses.replace(FENCE, votes=(Vote("r" * 250, 1, 1, 1),)),
    ],
)
def test_a_name_longer_than_any_of_ours_is_rejected(entry: ControlRecord) -> None:
    with pytest.raises(RemoteProtocolError, match="has 250 characters"):
        control_records.decode(control_records.encode(entry))


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        (HEARTBEAT, b"heartbeat:processing:tolls:1"),
        (FENCE, b"fence:tolls:1:17"),
        (MOVE, b"move:tolls:1"),
        (RESTATED, b"restated:tolls:2"),
        (SPLIT, b"split_step:tolls.0"),
        (REPORT, b"node_report:north.7"),
        (TRIM, b"trim_point:reports"),
        (PROGRESS, b"delivery_progress:tolls"),
        (ALARM, b"alarm:tolls"),
        (ASK, b"ask:reports:delivery.tolls"),
        (ANSWER, b"ask_reply:reports:delivery.tolls:1"),
    ],
)
def test_compaction_keeps_the_last_word_of_each(entry: ControlRecord, key: bytes) -> None:
    assert control_records.key_of(entry) == key


def test_a_record_of_another_topic_is_rejected() -> None:
    with pytest.raises(RemoteProtocolError, match="epoch_started in a control topic"):
        control_records.decode(boundary_records.encode(EpochStarted("0", "f", "t"))[0])


@pytest.mark.parametrize("value", [None, b"", b"x", control_records.encode(ALARM)[:-1]])
def test_anything_else_is_rejected(value: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        control_records.decode(value)
