"""Confluent framing, in front of a value or in a header of its record."""

from __future__ import annotations

import pytest

from anabranch.codec.framing import (
    HEADER_BYTES_MAX,
    SCHEMA_IDS_MAX,
    LearnedSchemas,
    framed,
    framing_of,
    key_of,
)
from anabranch.codec.writer_schema import SchemaKey, WriterSchema
from anabranch.protocol.errors import (
    ConfigurationError,
    RejectionReason,
    Unavailable,
    UnknownSchema,
)
from harness.registries import alone

ID = b"\0\0\0\1\2"
GUID = b"\1" + bytes(range(16))


@pytest.mark.parametrize(
    ("value", "framing"),
    [
        (ID, ID),
        (ID + b"rest", ID),
        (ID[:4], b""),
        (GUID + b"rest", GUID),
        (GUID[:16], b""),
        (b"\2" + bytes(20), b""),
        (b"", b""),
    ],
)
def test_the_first_byte_says_how_long_a_framing_is(value: bytes, framing: bytes) -> None:
    assert framing_of(value) == framing


def test_a_framing_names_an_id_or_a_guid() -> None:
    assert key_of(ID) == 258
    assert key_of(GUID) == "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_the_header_goes_before_the_value() -> None:
    values, rejected = framed([b"a", b"b", b"c"], [ID, None, GUID + b"\2\2"])
    assert (values, rejected) == ([ID + b"a", b"b", GUID + b"\2\2c"], [])


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "has 0 bytes and begins with none"),
        (ID[:4], "has 4 bytes and begins with 00"),
        (b"12345", "has 5 bytes and begins with 31"),
        (GUID + bytes(HEADER_BYTES_MAX), "has 145 bytes"),
    ],
)
def test_a_header_that_is_no_framing_rejects_its_record(header: bytes, says: str) -> None:
    values, ((index, error),) = framed([b"a", b"b"], [None, header])
    assert (values, index, error.reason) == ([b"a"], 1, RejectionReason.UNKNOWN_SCHEMA)
    assert says in str(error)


class Registry:
    """Schemas by id; those of ``broken`` cannot be read."""

    def __init__(self, *known: int, broken: int = 0) -> None:
        self.known = set(known)
        self.broken = broken
        self.unreadable = range(0)
        self.asked: list[SchemaKey] = []
        self.learned = LearnedSchemas(self._schema_of, self._use)

    def _schema_of(self, key: SchemaKey, /) -> WriterSchema:
        self.asked.append(key)
        if key == 9:
            raise Unavailable("away")
        if key not in self.known:
            raise UnknownSchema("not there")
        return alone(str(key))

    def _use(self, key: SchemaKey, schema: WriterSchema, /) -> str:
        if key == self.broken or key in self.unreadable:
            raise ConfigurationError("it is\nbroken")
        return schema.parts[0].content.decode()


def of(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")


def test_each_schema_is_asked_for_once_and_one_that_is_missing_again() -> None:
    registry = Registry(1, 2, broken=2)
    learned = registry.learned
    assert learned.learn([of(1), of(2), of(3)]) == [of(1)]
    assert learned.learn([of(1), of(2), of(3)]) == []
    assert registry.asked == [1, 2, 3, 3]
    assert learned.usable == {of(1): "1"}
    assert learned.why_not(of(2)) == "schema id 2: it is; broken"
    assert learned.why_not(of(3)) == "schema id 3: not there"
    registry.known.add(3)
    assert learned.learn([of(3)]) == [of(3)]
    assert learned.learn([of(3)]) == []
    assert registry.asked == [1, 2, 3, 3, 3]
    with pytest.raises(Unavailable):
        learned.learn([of(9)])


def test_ids_that_are_made_up_do_not_block_those_of_producers() -> None:
    registry = Registry(5_000, 2, broken=2)
    assert registry.learned.learn([of(2)]) == []
    for batch in range(1, 4):
        made_up = range(batch * 100_000, batch * 100_000 + SCHEMA_IDS_MAX)
        assert registry.learned.learn(map(of, made_up)) == []
        assert registry.learned.why_not(of(made_up[0])).endswith("not there")
    assert registry.learned.learn([of(5_000)]) == [of(5_000)]
    assert registry.learned.why_not(of(2)).endswith("it is; broken"), "made up ones go first"
    assert len(registry.asked) == 3 * SCHEMA_IDS_MAX + 2


def test_no_more_than_so_many_are_asked_for_at_once_the_lowest_first() -> None:
    registry = Registry(5_000)
    many = [of(5_000), *map(of, range(100_000, 100_000 + SCHEMA_IDS_MAX))]
    assert registry.learned.learn(many) == [of(5_000)]
    assert len(registry.asked) == SCHEMA_IDS_MAX
    assert "1000 others came with it" in registry.learned.why_not(many[-1])
    registry.learned.learn(many[-1:])
    assert registry.learned.why_not(many[-1]).endswith("not there"), "the next batch asks"


def test_schemas_that_cannot_be_read_are_forgotten_last() -> None:
    registry = Registry(*range(2 * SCHEMA_IDS_MAX), broken=-1)
    registry.unreadable = range(2 * SCHEMA_IDS_MAX)
    registry.learned.learn(map(of, range(10, 10 + SCHEMA_IDS_MAX)))
    registry.learned.learn(map(of, range(SCHEMA_IDS_MAX + 10, SCHEMA_IDS_MAX + 20)))
    asked = len(registry.asked)
    registry.learned.learn([of(10), of(19), of(20), of(SCHEMA_IDS_MAX + 15)])
    assert registry.asked[asked:] == [], "the limit is applied when new ones come"
    registry.learned.learn([of(9_999)])
    registry.learned.learn([of(10), of(20)])
    assert registry.asked[asked:] == [9_999, 10], "the oldest were forgotten"


def test_usable_schemas_are_never_forgotten_and_are_bounded() -> None:
    registry = Registry(*range(10, 20 + SCHEMA_IDS_MAX))
    assert len(registry.learned.learn(map(of, range(10, 10 + SCHEMA_IDS_MAX)))) == SCHEMA_IDS_MAX
    assert registry.learned.learn([of(15 + SCHEMA_IDS_MAX)]) == []
    assert len(registry.learned.usable) == SCHEMA_IDS_MAX
