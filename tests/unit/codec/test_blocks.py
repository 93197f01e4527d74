"""Blocks and digests. The digest is compared between replicas and kept in logs, so its values
are written down here.
"""

from __future__ import annotations

import math
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.codec import blocks
from anabranch.codec.blocks import (
    BLOCK_BYTES_MAX,
    ROW_BYTES_MAX,
    BlockHeaders,
    by_columns,
    canonical_sort,
    decode_block,
    digest,
    digests,
    encode_block,
    pieces,
    row_hashes,
    schema_from_text,
    schema_text,
    segments,
    split_by_bucket,
)
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import BLOCK_ROWS_MAX

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("small", pa.int8()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("level", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("event_time", pa.int64()),
    ]
)

FIRST: dict[str, Any] = {
    "key": 5,
    "small": -1,
    "flag": True,
    "text": "déjà",
    "raw": b"\x00\xff",
    "level": 1.5,
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "day": date(2026, 1, 2),
    "price": Decimal("1.10"),
    "tags": ["a", "b"],
    "event_time": 1_000,
}
NULLS: dict[str, Any] = {**dict.fromkeys(FIRST), "event_time": 1_000}

texts = st.one_of(st.none(), st.text(max_size=12))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "small": st.one_of(st.none(), st.integers(-128, 127)),
            "flag": st.one_of(st.none(), st.booleans()),
            "text": texts,
            "raw": st.one_of(st.none(), st.binary(max_size=12)),
            "level": st.one_of(st.none(), st.floats()),
            "at": st.one_of(
                st.none(),
                st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
            ),
            "day": st.one_of(st.none(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
            "price": st.one_of(st.none(), st.decimals(-99_999, 99_999, places=2, allow_nan=False)),
            "tags": st.one_of(st.none(), st.lists(texts, max_size=3)),
            "event_time": st.integers(1, 2_000),
        }
    ),
    max_size=8,
)


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def column(values: list[Any], kind: pa.DataType) -> int:
    """Digest of a table of one column."""
    return digest(pa.table({"c": pa.array(values, kind)}))


class TestDigest:
    def test_values_never_change(self) -> None:
        assert digest(table([])) == 0
        assert digest(table([FIRST])) == 0x355718D3E5CA578A
        assert digest(table([NULLS])) == 0x30FF439329A5D638
        assert digest(table([FIRST, NULLS, FIRST])) == 0x9BAD753AF53A854C

    @pytest.mark.parametrize(
        ("values", "kind", "expected"),
        [
            ([1, -1, None], pa.int64(), 0xA90C168425DBE92D),
            ([1, None], pa.uint64(), 0xFE70803249F12E60),
            ([True, False, None], pa.bool_(), 0x5006E5F1DB329AAD),
            (["", "a", "ab", None, "ba"], pa.string(), 0x46819F0A325D1BB4),
            (["", "a", "ab", None, "ba"], pa.large_string(), 0x46819F0A325D1BB4),
            ([b"", b"\x00", b"\x00\x00", None], pa.binary(), 0x2FD72ECB6D80B8C8),
            ([0.0, math.nan, None, 3.5, math.inf], pa.float64(), 0xF333B170FDB57347),
            ([datetime(2026, 1, 1), None], pa.timestamp("us"), 0xEEA32F82F7AF0258),  # noqa: DTZ001
            ([date(2026, 1, 1), None], pa.date32(), 0x49D0607BC5661F17),
            ([time(1, 2, 3), None], pa.time32("s"), 0x347BE66788CE2A08),
            ([time(1, 2, 3), None], pa.time64("us"), 0xE77D829857A30187),
            ([timedelta(seconds=3), None], pa.duration("us"), 0xD3BB8095E4DB57AB),
            ([Decimal("1.10"), None], pa.decimal128(5, 2), 0x69F27EE139A357D3),
            ([["a", None], [], None], pa.list_(pa.string()), 0xD2334A99C12F629F),
            (
                [{"n": Decimal("1.10"), "at": [1, None]}, None],
                pa.struct(
                    [("n", pa.decimal128(5, 2)), ("at", pa.list_(pa.timestamp("us", "UTC")))]
                ),
                0x757F5AC99263E4AB,
            ),
            (
                [[("b", 0.5), ("a", None)], [], None],
                pa.map_(pa.string(), pa.float64()),
                0x6AA1864C969D6DAA,
            ),
            ([None, None], pa.null(), 0x6E293F6F876DEAA6),
        ],
    )
    def test_values_of_each_type_never_change(
        self, values: list[Any], kind: pa.DataType, expected: int
    ) -> None:
        assert column(values, kind) == expected

    @given(rows=ROWS, data=st.data())
    def test_order_and_batching_do_not_matter(
        self, rows: list[dict[str, Any]], data: st.DataObject
    ) -> None:
        expected = digest(table(rows))
        assert digest(table(data.draw(st.permutations(rows)))) == expected
        cut = data.draw(st.integers(0, len(rows)))
        first, second = table(rows[:cut]), table(rows[cut:])
        assert (digest(first) + digest(second)) % 2**64 == expected
        assert digest(pa.concat_tables([second, first])) == expected
        assert digests([first, table([]), second]) == [digest(first), 0, digest(second)]
        assert digest(decode_block(encode_block(table(rows)))) == expected

    @given(rows=ROWS, before=st.integers(0, 4), after=st.integers(0, 4))
    def test_a_slice_of_a_table_is_a_table(
        self, rows: list[dict[str, Any]], before: int, after: int
    ) -> None:
        whole = table([FIRST] * before + rows + [NULLS] * after)
        assert (
            row_hashes(whole.slice(before, len(rows))).tolist() == row_hashes(table(rows)).tolist()
        )

    @given(rows=ROWS.filter(bool), data=st.data())
    def test_any_other_value_that_is_not_a_float_is_seen(
        self, rows: list[dict[str, Any]], data: st.DataObject
    ) -> None:
        at = data.draw(st.integers(0, len(rows) - 1))
        name = data.draw(st.sampled_from([n for n in SCHEMA.names if n != "level"]))
        other = data.draw(ROWS.filter(bool))[0][name]
        changed = [*rows[:at], {**rows[at], name: other}, *rows[at + 1 :]]
        assert (digest(table(changed)) == digest(table(rows))) == (other == rows[at][name])

    @given(st.lists(st.text(max_size=6), unique=True, max_size=50))
    @example(["", "\x00", "\x00\x00", "a", "aa", "aaa", "ab", "ba"])
    def test_different_texts_hash_differently(self, values: list[str]) -> None:
        assert len(set(row_hashes(pa.table({"c": pa.array(values, pa.string())})).tolist())) == len(
            values
        )

    @given(st.lists(st.one_of(st.none(), st.text(max_size=9)), max_size=30), st.integers(1, 20))
    def test_texts_are_hashed_in_slices_to_the_same_values(
        self, values: list[str | None], slice_bytes: int
    ) -> None:
        texts = pa.table({"c": pa.array(["ahead", *values], pa.string())}).slice(1)
        expected = row_hashes(texts).tolist()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(blocks, "_TEXT_BYTES", slice_bytes)
            assert row_hashes(texts).tolist() == expected

    @given(st.lists(st.text(max_size=9) | st.text("xy", min_size=60, max_size=80), max_size=20))
    @example(["x" * 70_000, "y" * 70_000, "", "z" * 140_000])
    def test_a_text_counts_each_octet_with_the_power_of_its_position(
        self, values: list[str]
    ) -> None:
        def expected(octets: bytes) -> int:
            power, total = 1, len(octets)
            for octet in octets:
                power = power * 0x100000001B3 % 2**64
                total += (octet + 1) * power
            return total % 2**64

        with np.errstate(over="ignore"):
            found = blocks._hash_bytes(pa.array(values, pa.string())).tolist()
        assert found == [expected(value.encode()) for value in values]

    def test_hashing_much_text_takes_little_memory(self) -> None:
        texts = pa.table({"c": ["x" * 100_000, "y" * 200_000] * 50})
        tracemalloc.start()
        row_hashes(texts)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 48 * 1024 * 1024, "for 15 MB of text"

    def test_nor_does_hashing_one_long_text(self) -> None:
        texts = pa.table({"c": ["x" * 30_000_000, "y"]})
        blocks._powers.cache_clear()
        tracemalloc.start()
        row_hashes(texts)
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * 1024 * 1024, "beside the text itself"
        assert kept < 4 * 1024 * 1024

    @pytest.mark.parametrize(
        ("kind", "zero"),
        [
            (pa.int64(), 0),
            (pa.bool_(), False),
            (pa.string(), ""),
            (pa.binary(), b""),
            (pa.float64(), 0.0),
            (pa.date32(), date(1970, 1, 1)),
            (pa.timestamp("us"), datetime(1970, 1, 1)),  # noqa: DTZ001
            (pa.decimal128(5, 2), Decimal(0)),
            (pa.list_(pa.int64()), []),
        ],
    )
    def test_nothing_is_not_zero(self, kind: pa.DataType, zero: object) -> None:
        assert column([None], kind) != column([zero], kind)

    def test_of_a_float_only_whether_it_is_a_number_counts(self) -> None:
        """Sums of floats depend on the order of addition: their last digits must raise no alarm."""
        sums = {column([x], pa.float64()) for x in (0.0, -0.0, 0.1 + 0.2, 0.3, math.inf, 5e300)}
        assert len(sums) == 1
        assert len({*sums, column([math.nan], pa.float64()), column([None], pa.float64())}) == 3
        assert column([0.5], pa.float32()) == column([0.25], pa.float32())

    def test_floats_inside_lists_and_structs_count_no_more_than_in_a_column(self) -> None:
        kind = pa.list_(pa.struct([("n", pa.int64()), ("x", pa.float64())]))
        assert column([[{"n": 1, "x": 0.1 + 0.2}]], kind) == column([[{"n": 1, "x": 0.3}]], kind)
        others: tuple[Any, ...] = (
            [{"n": 2, "x": 0.3}],
            [{"n": 1, "x": math.nan}],
            [{"n": 1, "x": None}],
            [],
            None,
            [{"n": 1, "x": 0.3}] * 2,
        )
        assert len({column([value], kind) for value in (*others, [{"n": 1, "x": 0.3}])}) == 7
        pairs = pa.map_(pa.string(), pa.float64())
        assert (
            column([[("a", 1.0)]], pairs)
            == column([[("a", 2.0)]], pairs)
            != column([[("b", 1.0)]], pairs)
        )

    def test_a_value_in_another_column_is_another_row(self) -> None:
        schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
        assert digest(table([{"a": 1, "b": 2}], schema)) != digest(
            table([{"a": 2, "b": 1}], schema)
        )

    def test_a_table_without_columns_or_rows(self) -> None:
        assert digest(pa.table({})) == 0
        assert digests([]) == []
        other = pa.table({"n": ["x"], "event_time": [7]})
        some = pa.table({"n": [5], "event_time": [7]})
        assert digests([some, other]) == [digest(some), digest(other)], "columns may change"
        assert row_hashes(table([])).tolist() == []
        assert row_hashes(pa.table({"c": pa.chunked_array([], pa.int64())})).tolist() == []

    def test_texts_beyond_what_one_array_can_hold_come_in_chunks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``combine_chunks`` leaves several chunks only above 2 GiB of text."""

        class Chunked:
            num_rows = 2

            def combine_chunks(self) -> Chunked:
                return self

            columns = (pa.chunked_array([["a"], ["b"]]),)

        assert row_hashes(Chunked()).tolist() == row_hashes(pa.table({"c": ["a", "b"]})).tolist()


class TestHeaders:
    @given(
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.integers(0, 2**32 - 1),
        st.sampled_from(["0", "15", "r/1"]),
        st.booleans(),
    )
    def test_come_back(
        self, bucket: int, epoch: int, number: int, replica: str, is_continued: bool
    ) -> None:
        headers = BlockHeaders(
            bucket=bucket,
            epoch=epoch,
            number=number,
            replica=replica,
            attempt="0123456789abcdef",
            is_continued=is_continued,
        )
        assert BlockHeaders.decode([("x", b"y"), *headers.encode()]) == headers

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            [("b", None)],
            [("b", b"")],
            [("b", bytes(20))],
            [("b", bytes(20) + b"no slash")],
            [("c", bytes(20) + b"no slash")],
            [("d", bytes(20) + b"a/0")],
        ],
    )
    def test_others_are_rejected(self, headers: list[tuple[str, bytes | None]]) -> None:
        with pytest.raises(RemoteProtocolError, match="no block header"):
            BlockHeaders.decode(headers)


class TestBlocks:
    @given(ROWS)
    def test_come_back(self, rows: list[dict[str, Any]]) -> None:
        before, after = table(rows), decode_block(encode_block(table(rows)))
        assert after.schema == before.schema
        assert repr(after.to_pylist()) == repr(before.to_pylist())

    def test_what_the_process_has_written_itself_is_not_looked_through(self) -> None:
        nothing = pa.table({"a": pa.nulls(3)})
        value = encode_block(nothing)
        with pytest.raises(RemoteProtocolError, match="type null"):
            decode_block(value)
        assert decode_block(value, is_own=True) == nothing

    @pytest.mark.parametrize("value", [None, b"", b"\xff" * 40, bytes(ROW_BYTES_MAX + 1)])
    def test_what_is_no_block_is_rejected(self, value: bytes | None) -> None:
        with pytest.raises(RemoteProtocolError, match="block"):
            decode_block(value)

    @given(st.integers(0, 2_000))
    def test_a_torn_block_is_rejected_or_has_fewer_rows(self, length: int) -> None:
        value = encode_block(table([FIRST] * 3))
        try:
            assert decode_block(value[:length]).num_rows in (0, 3)
        except RemoteProtocolError:
            assert length < len(value)

    @given(st.binary(max_size=300))
    @example(bytes(100))
    @example(bytes(101))
    def test_a_large_one_is_cut_into_segments(self, value: bytes) -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(blocks, "_SEGMENT_BYTES_MAX", 100)
            cut = segments(value)
            assert b"".join(cut) == value
            assert [len(each) for each in cut[:-1]] == [100] * (len(cut) - 1)
            assert len(cut[-1]) <= 100

    def test_a_schema_comes_back_without_its_metadata(self) -> None:
        assert schema_from_text(schema_text(SCHEMA.with_metadata({"pandas": "x"}))).equals(
            SCHEMA, check_metadata=True
        )

    @pytest.mark.parametrize("text", ["", "é", "x", "AAAA", schema_text(SCHEMA)[:100]])
    def test_what_is_no_schema_is_rejected(self, text: str) -> None:
        with pytest.raises(RemoteProtocolError, match="not the schema"):
            schema_from_text(text)

    def test_large_tables_are_cut_by_rows_and_by_bytes(self) -> None:
        assert pieces(table([])) == []
        small = table([FIRST])
        assert pieces(small) == [small]
        many = pa.table({"event_time": pa.array(range(BLOCK_ROWS_MAX + 1))})
        assert [piece.num_rows for piece in pieces(many)] == [BLOCK_ROWS_MAX, 1]
        wide = pa.table({"text": ["x" * (BLOCK_BYTES_MAX // 2)] * 5})
        cut = pieces(wide)
        assert sum(piece.num_rows for piece in cut) == 5
        assert max(piece.num_rows for piece in cut) <= 2
        assert [
            piece.num_rows
            for piece in pieces(pa.table({"text": ["x" * (2 * BLOCK_BYTES_MAX)] * 2}))
        ] == [1, 1]

    @given(st.lists(st.sampled_from([0, 1, 40, 400, 4_000]), max_size=60))
    @example([0] * 50 + [400] * 3)
    def test_no_piece_is_larger_than_a_block_however_skewed_the_rows_are(
        self, sizes: list[int]
    ) -> None:
        rows = pa.table({"text": pa.array(["x" * size for size in sizes], pa.string())})
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(blocks, "BLOCK_BYTES_MAX", 500)
            cut = pieces(rows)
        assert [row for piece in cut for row in piece.to_pylist()] == rows.to_pylist()
        assert all(piece.nbytes <= 500 or piece.num_rows == 1 for piece in cut)


class TestBuckets:
    def test_the_upper_bound_belongs_to_the_bucket(self) -> None:
        found = split_by_bucket(pa.table({"event_time": [100, 101, 199, 200, 201]}), 100)
        assert [(bucket, rows.column("event_time").to_pylist()) for bucket, rows in found] == [
            (1, [100]),
            (2, [101, 199, 200]),
            (3, [201]),
        ]

    def test_none_and_one(self) -> None:
        assert split_by_bucket(pa.table({"event_time": pa.array([], pa.int64())}), 100) == []
        one = pa.table({"event_time": [150, 101, 200]})
        assert split_by_bucket(one, 100) == [(2, one)]

    @given(
        st.lists(st.tuples(st.integers(1, 500), st.integers()), max_size=20), st.integers(1, 120)
    )
    def test_each_row_is_in_its_bucket_and_keeps_its_place(
        self, rows: list[tuple[int, int]], width_ms: int
    ) -> None:
        data = pa.table(
            {
                "n": [f"{n}" for _, n in rows],
                "event_time": pa.array([s for s, _ in rows], pa.int64()),
            }
        )
        found = split_by_bucket(data, width_ms)
        assert [bucket for bucket, _ in found] == sorted({-(-s // width_ms) for s, _ in rows})
        for bucket, part in found:
            assert part.to_pylist() == [
                {"n": f"{n}", "event_time": s}
                for s, n in rows
                if (bucket - 1) * width_ms < s <= bucket * width_ms
            ]
        assert sum(digest(part) for _, part in found) % 2**64 == digest(data)


class TestCanonicalOrder:
    def test_time_then_exact_columns_then_floats_nulls_first(self) -> None:
        schema = pa.schema(
            [("x", pa.float64()), ("k", pa.int64()), ("t", pa.string()), ("event_time", pa.int64())]
        )
        expected: list[dict[str, Any]] = [
            {"x": 9.0, "k": None, "t": "z", "event_time": 1},
            {"x": 8.0, "k": 1, "t": None, "event_time": 1},
            {"x": 7.0, "k": 1, "t": "", "event_time": 1},
            {"x": None, "k": 1, "t": "a", "event_time": 1},
            {"x": 1.0, "k": 1, "t": "a", "event_time": 1},
            {"x": 2.0, "k": 1, "t": "a", "event_time": 1},
            {"x": 0.0, "k": 0, "t": "", "event_time": 2},
        ]
        assert canonical_sort(table(expected[::-1], schema)).to_pylist() == expected

    def test_nested_columns_come_after_plain_ones_and_their_floats_last(self) -> None:
        point = pa.struct([("n", pa.int64()), ("x", pa.float64())])
        schema = pa.schema(
            [
                ("p", point),
                ("m", pa.map_(pa.string(), pa.int64())),
                ("1", pa.decimal128(5, 2)),
                ("event_time", pa.int64()),
            ]
        )
        one = {"p": {"n": 1, "x": 0.5}, "m": [("a", 1), ("b", 2)], "1": Decimal("1.00")}
        expected: list[dict[str, Any]] = [
            {**one, "p": {"n": 9, "x": 9.0}, "1": Decimal("-1.00")},
            {**one, "p": None, "m": None},
            {**one, "p": None},
            {**one, "m": [("b", 1), ("a", 1)]},
            {**one, "p": {"n": 1, "x": 0.25}, "m": [("b", 2), ("a", 1)]},
            one,
            {**one, "p": {"n": 2, "x": 0.0}},
        ]
        expected = [{**row, "event_time": 1} for row in expected]
        assert canonical_sort(table(expected[::-1], schema)).to_pylist() == expected

    def test_a_negative_zero_comes_before_a_positive_one_after_all_columns(self) -> None:
        schema = pa.schema([("x", pa.float64()), ("y", pa.float32()), ("event_time", pa.int64())])
        expected = [
            {"x": x, "y": y, "event_time": 1}
            for x, y in [
                (None, 0.0),
                (math.nan, -0.0),
                (-1.0, 0.0),
                (0.0, -1.0),
                (-0.0, 0.0),
                (0.0, -0.0),
                (0.0, 0.0),
                (1.0, 0.0),
            ]
        ]
        for rows in (expected, expected[::-1]):
            assert repr(canonical_sort(table(rows, schema)).to_pylist()) == repr(expected)

    @pytest.mark.parametrize(
        "key", [pa.struct([("n", pa.int64())]), pa.list_(pa.int64()), pa.float64()]
    )
    def test_keys_of_maps_that_python_does_not_order_have_one_order_too(
        self, key: pa.DataType
    ) -> None:
        keys: list[Any] = (
            [math.nan, -0.0, 2.5]
            if key == pa.float64()
            else [{"n": None}, {"n": 1}]
            if pa.types.is_struct(key)
            else [[None], [1], []]
        )
        kind = pa.map_(key, pa.int64())
        pairs = [(each, n) for n, each in enumerate(keys)]
        assert column([pairs], kind) == column([pairs[::-1]], kind)
        assert column([pairs], kind) != column([[(each, 0) for each in keys]], kind)

    def test_pairs_of_a_map_count_alike_in_any_order(self) -> None:
        kind = pa.map_(pa.string(), pa.timestamp("us", "UTC"))
        assert column([[("a", 1), ("b", None)]], kind) == column([[("b", None), ("a", 1)]], kind)
        assert column([[("a", 1), ("b", None)]], kind) != column([[("b", 1), ("a", None)]], kind)

    @given(rows=ROWS, data=st.data())
    def test_is_the_same_for_any_order(
        self, rows: list[dict[str, Any]], data: st.DataObject
    ) -> None:
        once = canonical_sort(table(rows))
        again = canonical_sort(table(data.draw(st.permutations(rows))))
        assert repr(once.to_pylist()) == repr(again.to_pylist())
        assert digest(once) == digest(table(rows))


def test_tables_are_put_together_by_their_columns_whatever_their_order() -> None:
    one, two, other = (pa.table({"a": [n], "event_time": [1]}) for n in (1, 2, 3))
    other = other.rename_columns(["b", "event_time"])
    tagged = two.replace_schema_metadata({"made": "elsewhere"})
    assert by_columns([]) == []
    assert [table.to_pydict() for table in by_columns([one, tagged])] == [
        {"a": [1, 2], "event_time": [1, 1]}
    ]
    for some in ([one, other, tagged], [other, one, tagged], [one, tagged, other]):
        assert [table.to_pydict() for table in by_columns(some)] == [
            {"a": [1, 2], "event_time": [1, 1]},
            {"b": [3], "event_time": [1]},
        ]
