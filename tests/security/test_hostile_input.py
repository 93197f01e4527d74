"""Tests of every decoder with hostile input: only the documented error is raised, soon, and without
much memory.

The corpus is ``hostile.jsonl``: each line a name and ``parts``, hexadecimal bytes with a count, so
that a megabyte takes a line; ``record``: with the head of that record of ours. Every line goes to
every decoder. Then hypothesis changes good inputs.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.codec import (
    boundary_records,
    control_records,
    federation_records,
    live_records,
    record_schema,
)
from anabranch.codec.blocks import (
    BlockHeaders,
    decode_block,
    digest,
    encode_block,
    schema_from_text,
    schema_text,
)
from anabranch.codec.catalog import catalog
from anabranch.codec.edge import Decoder
from anabranch.codec.framing import SchemaOf
from anabranch.codec.part_lists import parts_from_json
from anabranch.pipeline import file as pipeline_file
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.edge.live_delivery import LiveProgress
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    RecordRejected,
    RemoteProtocolError,
)
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import MIB, RECORD_BYTES_MAX
from harness import boundary_logs, catalogs, sources
from harness.examples import examples
from harness.markets import CONTRACT, signature
from harness.protobuf_messages import message_class, schema_of
from harness.registries import alone

HERE = Path(__file__).parent
RECORD = record_schema.from_avro(json.loads((HERE / "report.avsc").read_text()), "report")

YARDSTICK_ROUNDS = 100_000
"""A loop of Python of 15 to 40 ms, run beside each try: machines differ by more than good and
bad decoders of one machine.
"""
YARDSTICKS_PER_MIB = 4
"""Maximum processor time per MiB, in yardsticks, the best of some tries: a user's record has at
most 1 MiB, so none costs more than some 60 ms of a usual core.
"""
OWN_YARDSTICKS_PER_MIB = 40
"""Maximum for the project's own small records, which only a writer with rights can write: they are
read value by value. Good records cost as much.
"""
TRIES_MAX = 6
BYTES_PER_BYTE = 10
SLACK_BYTES = 2 * MIB
"""Memory that a decoder may take for its first byte: caches, messages, tables without rows."""


@dataclass(frozen=True)
class Reading:
    """A way to read bytes, and what it may raise. ``bytes_max``: what it takes at all;
    ``timed``: its time and memory are looked at.
    """

    read: Callable[[bytes], object]
    raises: type[AnabranchError]
    good: bytes
    bytes_max: int = 16 * MIB
    timed: bool = True
    yardsticks_per_mib: int = YARDSTICKS_PER_MIB


def edge(form: str, schema_of: SchemaOf | None = None) -> Callable[[bytes], object]:
    decoder = Decoder(RECORD, form, schema_of=schema_of)

    def read(value: bytes) -> object:
        """One bad record between two of another kind: each has an answer, and the neighbours
        have their own.
        """
        found = decoder.decode([value])
        assert len(found.table) + len(found.rejected) == 1
        for _, error in found.rejected:
            assert len(str(error)) < 1_000, "an explanation is short, whatever it is about"
            raise error
        found.table.validate(full=True)
        return found

    return read


def live(value: bytes) -> None:
    """Decode ``value`` as kind, id, times and names in headers, and as a control record's value."""
    for kind in (b"insertion", b"tentative", b"undo", b"boundary", b"rec_done", value):
        for name in (
            "anabranch-id",
            "anabranch-event-time",
            "anabranch-missing",
            "anabranch-stable-id",
        ):
            for how in (
                lambda h: live_records.decode(h, None, value),
                lambda h: live_records.restored(h, value),
            ):
                try:
                    how([("anabranch-kind", kind), (name, value)])
                except RemoteProtocolError:
                    continue
    live_records.decode_progress(value)


def texts(value: bytes) -> None:
    text = value.decode("utf-8", "replace")
    RecordId.parse(text)


def parts(value: bytes) -> object:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("not JSON: not this decoder's business") from None
    return parts_from_json(found)


def block(value: bytes) -> object:
    table = decode_block(value)
    return digest(table), table.to_pylist() if table.num_rows < 1_000 else None


def headers(value: bytes) -> object:
    return BlockHeaders.decode([("b", value)])


def schema(value: bytes) -> object:
    return schema_from_text(value.decode("latin-1"))


CHAIN = {
    "type": "record",
    "name": "chain",
    "fields": [{"name": "next", "type": ["null", "chain", {"type": "array", "items": "chain"}]}],
}
ANY_WRITER = {
    **RECORD.avro,
    "fields": [
        {"name": "chain", "type": CHAIN},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "map", "type": {"type": "map", "values": ["null", "string", "double"]}},
        *RECORD.avro["fields"],
    ],
}
"""A schema of a writer that has what claims the most: all of it is skipped."""


MESSAGES = schema_of(
    """syntax = "proto3"; message report {
      optional int64 time = 1; int64 car = 2; double speed = 3; string road = 4; int32 lane = 5;
      bool seen = 6; repeated report more = 7; map<string, report> named = 8;
    }"""
)
"""A schema of a writer whose messages contain themselves."""
REPORT = message_class(MESSAGES, "report")
MESSAGE = REPORT(time=1_000, car=1, speed=61.25, road="I-95", lane=2, seen=True, more=[REPORT()])

TABLE = pa.table({"car": [1, 2], "road": ["a", None], "raw": [b"x", b""], "event_time": [1, 2]})
BEAT = Heartbeat("processing", "totals", "0", 1, "running", 1, 0)
READINGS = {
    "json": Reading(edge("json"), RecordRejected, sources.report(1_000), RECORD_BYTES_MAX),
    "avro": Reading(
        edge("avro"),
        RecordRejected,
        bytes.fromhex("0000000001") + bytes.fromhex("02d00f02000000000000f03f02610401"),
        RECORD_BYTES_MAX,
    ),
    "avro of another writer": Reading(
        edge("avro", lambda _: alone(json.dumps(ANY_WRITER))),
        RecordRejected,
        bytes.fromhex("0000000001")
        + bytes.fromhex("0200" + "0400" + "02026102027800")
        + bytes.fromhex("02d00f02000000000000f03f02610401"),
        RECORD_BYTES_MAX,
    ),
    "json_schema": Reading(
        edge("json_schema", lambda _: alone("{}")),
        RecordRejected,
        bytes.fromhex("0000000001") + sources.report(1_000),
        RECORD_BYTES_MAX,
    ),
    "protobuf": Reading(
        edge("protobuf", lambda _: MESSAGES),
        RecordRejected,
        bytes.fromhex("0000000001") + b"\0" + MESSAGE.SerializeToString(),
        RECORD_BYTES_MAX,
    ),
    "block": Reading(block, RemoteProtocolError, encode_block(TABLE)),
    "block headers": Reading(
        headers, RemoteProtocolError, BlockHeaders(1, 2, 3, "0", "attempt").encode()[0][1]
    ),
    "schema": Reading(schema, RemoteProtocolError, schema_text(TABLE.schema).encode()),
    "boundary log": Reading(
        boundary_records.decode,
        RemoteProtocolError,
        boundary_records.encode(boundary_logs.started())[0],
        yardsticks_per_mib=OWN_YARDSTICKS_PER_MIB,
    ),
    "control": Reading(control_records.decode, RemoteProtocolError, control_records.encode(BEAT)),
    "federation": Reading(
        federation_records.decode,
        RemoteProtocolError,
        federation_records.encode(CONTRACT, signature(CONTRACT, "north")),
        yardsticks_per_mib=OWN_YARDSTICKS_PER_MIB,
    ),
    "keys": Reading(
        federation_records.decode_key_log,
        RemoteProtocolError,
        federation_records.encode_key(PublishedKey("north", "1", bytes(32))),
    ),
    "federation catalog": Reading(
        federation_records.decode_catalog,
        RemoteProtocolError,
        federation_records.encode(catalogs.entry(), catalogs.signature(catalogs.entry())),
        yardsticks_per_mib=OWN_YARDSTICKS_PER_MIB,
    ),
    "live": Reading(
        live,
        RemoteProtocolError,
        live_records.encode_progress(LiveProgress("out", 1, 1, 1)),
        timed=False,
    ),
    "record id": Reading(texts, RemoteProtocolError, b"12.34"),
    "parts": Reading(parts, RemoteProtocolError, b'[["a"],[1,0,0,1,0,1,1,"ff",9]]', timed=False),
}


def corpus() -> dict[str, bytes]:
    found = {}
    for line in (HERE / "hostile.jsonl").read_text().splitlines():
        entry = json.loads(line)
        head = (
            b"\xc3\x01" + catalog().newest(entry["record"]).fingerprint
            if "record" in entry
            else b""
        )
        found[entry["name"]] = head + b"".join(
            bytes.fromhex(text) * count for text, count in entry["parts"]
        )
    return found


CORPUS = corpus()


def tried(reading: Reading, value: bytes) -> object:
    """Return what a decoder makes of ``value``; any error but the documented one is raised."""
    try:
        return reading.read(value)
    except reading.raises as error:
        return error


@pytest.mark.parametrize("how", READINGS)
def test_a_good_one_is_read(how: str) -> None:
    assert not isinstance(tried(READINGS[how], READINGS[how].good), AnabranchError)


@pytest.mark.parametrize("how", READINGS)
def test_only_the_documented_error_comes_out(how: str) -> None:
    for name, value in CORPUS.items():
        try:
            tried(READINGS[how], value)
        except Exception as error:  # noqa: BLE001 - which one it is, is the finding
            pytest.fail(f"{name}: {type(error).__name__}: {str(error)[:200]}")


@pytest.mark.parametrize("how", [how for how, reading in READINGS.items() if reading.timed])
def test_it_comes_soon(how: str) -> None:
    """In processor time of this thread beside that of a yardstick: neither what others do
    here nor how fast the machine is just now counts.
    """
    slow = {}
    for name, value in CORPUS.items():
        if len(value) > READINGS[how].bytes_max + 1:
            continue
        allowed = READINGS[how].yardsticks_per_mib * max(1, len(value) / MIB)
        run = partial(tried, READINGS[how], value)
        if _seconds(run) <= allowed * _shortest_yardstick_s() / 2:
            continue  # most inputs by far, so a yardstick for each would take longer than they
        tries: list[float] = []
        while len(tries) < TRIES_MAX and min(tries, default=allowed + 1) > allowed:
            tries.append(_seconds(run) / _seconds(yardstick))
        if min(tries) > allowed:
            slow[name] = (
                f"{min(tries):.1f} yardsticks for {len(value)} bytes, allowed {allowed:.1f}"
            )
    assert not slow


def yardstick() -> None:
    table = {}
    for number in range(YARDSTICK_ROUNDS):
        table[number & 1_023] = (number, str(number))


@cache
def _shortest_yardstick_s() -> float:
    return min(_seconds(yardstick) for _ in range(TRIES_MAX))


def _seconds(run: Callable[[], object]) -> float:
    begun = time.thread_time()
    run()
    return time.thread_time() - begun


@pytest.mark.parametrize("how", [how for how, reading in READINGS.items() if reading.timed])
def test_it_takes_little_memory(how: str) -> None:
    """Python's and numpy's by tracemalloc, Arrow's by its pool."""
    large, before = {}, pa.default_memory_pool()
    for name, value in CORPUS.items():
        tried(READINGS[how], value)
        pool = pa.proxy_memory_pool(before)
        POOLS.append(pool)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            tried(READINGS[how], value)
            peak = tracemalloc.get_traced_memory()[1] + pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
        if peak > BYTES_PER_BYTE * len(value) + SLACK_BYTES:
            large[name] = f"{peak / MIB:.1f} MiB for {len(value) / MIB:.1f} MiB"
    assert not large


POOLS: list[pa.MemoryPool] = []
"""They outlive what was taken from them."""


# ---------------------------------------------------------------- good ones, changed

FUZZ = examples(150)


@st.composite
def changed(draw: st.DrawFn, value: bytes) -> bytes:
    """``value`` with bytes flipped, lost, doubled, put in, or with a piece of the corpus in it."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(value)))
        width = draw(st.integers(0, 9))
        put = draw(
            st.binary(max_size=10)
            | st.just(value[at : at + width] * 2)
            | st.sampled_from([v[:64] for v in CORPUS.values()])
            | st.sampled_from(
                [
                    b"\xff" * 9 + b"\x01",
                    b"\x80" * 4,
                    b"\x00" * 8,
                    b"\xff" * 8,
                    b"null",
                    b"1e999",
                    b"-1",
                    b"9" * 20,
                    b"\\ud800",
                ]
            )
        )
        value = value[:at] + put + value[at + width :]
    return value


@pytest.mark.parametrize("how", READINGS)
def test_changed_ones(how: str) -> None:
    reading = READINGS[how]

    @FUZZ
    @given(changed(reading.good) | st.binary(max_size=64))
    def check(value: bytes) -> None:
        tried(reading, value)

    check()


@FUZZ
@given(st.sampled_from(sorted(catalog().records)), st.binary(max_size=200))
def test_any_body_behind_a_head_of_ours(record: tuple[str, int], body: bytes) -> None:
    value = b"\xc3\x01" + catalog().records[record].fingerprint + body
    for how in ("boundary log", "control", "live", "federation", "keys", "federation catalog"):
        tried(READINGS[how], value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=20,
)


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from(["stable", "shown", "stable_ms", "shown_ms", "sequence", "last_id"]), JSON
    )
)
@example({"stable": float("inf"), "stable_ms": 0})
@example({"stable": 1, "stable_ms": float("nan")})
def test_any_fields_of_a_control_record_of_a_live_topic(fields: dict[str, Any]) -> None:
    for kind in (b"undo", b"boundary", b"rec_done"):
        try:
            live_records.decode([("anabranch-kind", kind)], None, json.dumps(fields).encode())
        except RemoteProtocolError:
            continue


@FUZZ
@given(
    JSON
    | st.tuples(
        st.lists(st.text(max_size=3), max_size=2), st.lists(JSON, min_size=8, max_size=8)
    ).map(list)
)
def test_any_json_where_parts_should_be(value: object) -> None:
    try:
        parts_from_json(value)
    except RemoteProtocolError:
        return


# ---------------------------------------------------------------- the pipeline file


def loaded(folder: Path, content: bytes) -> object:
    path = folder / "pipeline.yaml"
    path.write_bytes(content)
    try:
        return pipeline_file.load(path)
    except ConfigurationError as error:
        return error


def test_the_corpus_as_a_pipeline_file(tmp_path: Path) -> None:
    for name, value in CORPUS.items():
        try:
            assert isinstance(loaded(tmp_path, value), ConfigurationError)
        except Exception as error:  # noqa: BLE001 - which one it is, is the finding
            pytest.fail(f"{name}: {type(error).__name__}: {str(error)[:200]}")


@examples(100)
@given(data=st.data())
def test_a_changed_pipeline_file(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = FOLDER.setdefault("", tmp_path_factory.mktemp("file"))
    loaded(folder, data.draw(changed((HERE / "pipeline.yaml").read_bytes())))


FOLDER: dict[str, Path] = {}
"""One for all examples."""
