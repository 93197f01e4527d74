from __future__ import annotations

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.open_parts import OpenParts
from anabranch.protocol.log.records import Part

A, B = BatchId("l", 1), BatchId("l", 2)


def part(bucket: int, attempt: str = "a") -> Part:
    return Part(bucket, 0, attempt, 1, 0, 1, 1, 7)


def opened() -> OpenParts:
    return OpenParts([(A, part(5)), (B, part(3)), (B, part(5, "b")), (A, part(9))])


def test_parts_stand_by_bucket_in_the_order_of_their_naming() -> None:
    parts = opened()
    assert (len(parts), parts.between(1, 99), parts.between(1, 99, 2)) == (4, [3, 5, 9], [3, 5])
    assert (parts.of(5), parts.of(4)) == ((part(5), part(5, "b")), ())
    assert parts.items() == ((B, part(3)), (A, part(5)), (B, part(5, "b")), (A, part(9)))


def test_op1_op2_closing_takes_them_out() -> None:
    parts = opened()
    assert parts.close(5) == [(3, (part(3),)), (5, (part(5), part(5, "b")))]
    assert (len(parts), parts.close(5)) == (1, [])
    parts.clear()
    assert (len(parts), parts.items()) == (0, ())


def test_a_rewind_keeps_what_other_records_named() -> None:
    parts = opened()
    parts.drop({B})
    assert (len(parts), parts.items()) == (2, ((A, part(5)), (A, part(9))))


def test_what_fits() -> None:
    parts = opened()
    assert parts.fits([part(10)], 0, 5)
    assert not parts.fits([part(10)], 2, 4)
    assert parts.fits([part(10)], 3, 4)
    assert parts.fits([part(10), part(2)], 3, 4)
    assert not parts.fits([part(10), part(12)], 3, 4)
