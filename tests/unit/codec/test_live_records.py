from __future__ import annotations

import dataclasses
import json

import pytest

from anabranch.codec import boundary_records, live_records
from anabranch.codec.catalog import catalog
from anabranch.protocol.edge.live_delivery import Kind, LiveProgress
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.edge.views import KeyState, LiveRecord, Version, ViewRecord
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.records import EpochStarted

PROGRESS = LiveProgress(
    "tolls",
    2,
    17,
    40,
    43,
    undone=True,
    last_bucket=39,
    last_position=4,
    written_ms=1_700_000_000_000,
)
ORIGIN = Origin("p", "tolls", "x")
STABLE = Version(RecordId(3, 1), 300, b'{"a":1}')
TENTATIVE = Version(RecordId(5, 0), 500, b'{"a":2}', (9, 2), ("reports", "other"))


def test_progress_comes_back_as_it_was() -> None:
    assert live_records.decode_progress(live_records.encode_progress(PROGRESS)) == PROGRESS
    names = [field["name"] for field in catalog().newest("live_progress").avro["fields"]]
    assert names == [field.name for field in dataclasses.fields(LiveProgress)]


@pytest.mark.parametrize("value", [None, b"", b"x", live_records.encode_progress(PROGRESS)[:-1]])
def test_what_is_no_progress_is_rejected(value: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        live_records.decode_progress(value)


def test_progress_of_another_kind_is_rejected() -> None:
    with pytest.raises(RemoteProtocolError, match="epoch_started in a live progress topic"):
        live_records.decode_progress(boundary_records.encode(EpochStarted("0", "f", "t"))[0])


@pytest.mark.parametrize(
    ("kind", "fields", "record"),
    [
        (
            Kind.UNDO,
            {"kind": "undo", "stable": 40, "stable_ms": 4_000, "last_id": "39.4"},
            LiveRecord(Kind.UNDO, RecordId(39, 4), stable=40, stable_ms=4_000),
        ),
        (
            Kind.REC_DONE,
            {"kind": "rec_done", "stable": 40, "stable_ms": 4_000},
            LiveRecord(Kind.REC_DONE, stable=40, stable_ms=4_000),
        ),
        (
            Kind.BOUNDARY,
            {
                "kind": "boundary",
                "stable": 40,
                "stable_ms": 4_000,
                "shown": 43,
                "shown_ms": 4_300,
                "sequence": 17,
            },
            LiveRecord(
                Kind.BOUNDARY, stable=40, stable_ms=4_000, shown=43, shown_ms=4_300, sequence=17
            ),
        ),
    ],
)
def test_control_records_are_flat_json(
    kind: Kind, fields: dict[str, object], record: LiveRecord
) -> None:
    value, headers = live_records.control(kind, PROGRESS, 100, ORIGIN)
    assert json.loads(value) == fields
    assert dict(headers)["anabranch-kind"] == kind.value.encode()
    assert live_records.decode(headers, None, value) == dataclasses.replace(
        record, origin="p.tolls.x"
    )


def test_an_undo_before_any_stable_tuple_names_none() -> None:
    value, headers = live_records.control(
        Kind.UNDO, dataclasses.replace(PROGRESS, last_bucket=0), 100, ORIGIN
    )
    assert "anabranch-id" not in dict(headers)
    assert live_records.decode(headers, None, value).id is None


def headers(kind: bytes | None, **more: bytes | None) -> list[tuple[str, bytes | None]]:
    names = {"ident": "anabranch-id", "event_time": "anabranch-event-time"}
    return [("anabranch-kind", kind), *((names[name], value) for name, value in more.items())]


def test_user_records() -> None:
    insertion = headers(b"insertion", ident=b"3.1", event_time=b"300")
    found = live_records.decode([*insertion, ("anabranch-origin", b"p.tolls.x")], b"k", b"v")
    assert found == LiveRecord(
        Kind.INSERTION,
        RecordId(3, 1),
        event_time_ms=300,
        key=b"k",
        value=b"v",
        origin="p.tolls.x",
    )
    ident = b"3.1" + live_records.tentative_suffix((9, 2))
    tentative = headers(b"tentative", ident=ident, event_time=b"300")
    found = live_records.decode([*tentative, ("anabranch-missing", b"a,b")], None, b"v")
    assert (found.kind, found.id, found.branch, found.missing) == (
        Kind.TENTATIVE,
        RecordId(3, 1),
        (9, 2),
        ("a", "b"),
    )
    assert live_records.decode([*tentative, ("anabranch-missing", b"")], None, b"v").missing == ()
    assert found.shed == 0
    assert live_records.decode([*tentative, ("anabranch-shed", b"700")], None, b"v").shed == 700
    for wrong in (b"", b"x", b"1001", b"-1", b"00001"):
        with pytest.raises(RemoteProtocolError, match="not a number of per mille"):
            live_records.decode([*tentative, ("anabranch-shed", wrong)], None, b"v")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ([], b"v"),
        (headers(b"other"), b"v"),
        (headers(b"insertion"), b"v"),
        (headers(b"insertion", ident=b"1.1/2.2", event_time=b"1"), b"v"),
        (headers(b"tentative", ident=b"1.1", event_time=b"1"), b"v"),
        (headers(b"tentative", ident=b"1.1/x", event_time=b"1"), b"v"),
        (headers(b"insertion", ident=b"1.1", event_time=b"-1"), b"v"),
        (headers(b"insertion", ident=None, event_time=b"1"), b"v"),
        (headers(None), b"{}"),
        (headers(b"boundary"), None),
        (headers(b"boundary"), b"x" * 5_000),
        (headers(b"boundary"), b"[]"),
        (headers(b"boundary"), b"{}"),
        (headers(b"boundary"), b"\xff"),
        (headers(b"undo"), b'{"stable":1,"stable_ms":1,"last_id":7}'),
    ],
)
def test_what_is_none_of_ours_is_rejected(
    given: list[tuple[str, bytes | None]], value: bytes | None
) -> None:
    with pytest.raises(RemoteProtocolError):
        live_records.decode(given, None, value)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (Kind.INSERTION, KeyState(STABLE)),
        (Kind.UNDO, KeyState(STABLE)),
        (Kind.UNDO, KeyState()),
        (Kind.TENTATIVE, KeyState(None, TENTATIVE)),
        (Kind.TENTATIVE, KeyState(STABLE, TENTATIVE)),
        (Kind.TENTATIVE, KeyState(dataclasses.replace(STABLE, missing=("a", "b")), TENTATIVE)),
        (Kind.TENTATIVE, KeyState(STABLE, dataclasses.replace(TENTATIVE, missing=()))),
        (Kind.TENTATIVE, KeyState(STABLE, dataclasses.replace(TENTATIVE, missing=(), shed=700))),
    ],
)
def test_the_newest_record_of_a_key_is_its_state(kind: Kind, state: KeyState) -> None:
    value, headers = live_records.upsert(ViewRecord(b"k", kind, state), ORIGIN)
    assert value == (None if state.visible is None else state.visible.value)
    assert dict(headers)["anabranch-kind"] == kind.value.encode()
    assert dict(headers)["anabranch-origin"] == b"p.tolls.x"
    assert live_records.restored(headers, value) == state


@pytest.mark.parametrize("kind", [None, b"", b"boundary", b"x"])
def test_other_records_are_no_state(kind: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        live_records.restored([("anabranch-kind", kind)], b"v")
