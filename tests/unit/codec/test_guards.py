from __future__ import annotations

from anabranch.codec.guards import admit, rejection
from anabranch.protocol.errors import RejectionReason
from anabranch.protocol.limits import RECORD_BYTES_MAX


def test_values_that_may_be_decoded_are_all_admitted() -> None:
    assert admit([b"a", b"x" * RECORD_BYTES_MAX]) == (
        [b"a", b"x" * RECORD_BYTES_MAX],
        None,
        [],
        RECORD_BYTES_MAX + 1,
    )
    assert admit([]) == ([], None, [], 0)


def test_the_others_are_rejected_unseen_and_keep_their_places() -> None:
    admitted, rows, rejected, size_bytes = admit(
        [b"a", None, b"", b"b", b"x" * (RECORD_BYTES_MAX + 1), b"c"]
    )
    assert (admitted, rows, size_bytes) == ([b"a", b"b", b"c"], [0, 3, 5], RECORD_BYTES_MAX + 4)
    assert [(index, error.reason) for index, error in rejected] == [
        (1, RejectionReason.NULL_VALUE),
        (2, RejectionReason.EMPTY_VALUE),
        (4, RejectionReason.TOO_LARGE),
    ]


def test_one_kind_of_trouble_alone_is_seen() -> None:
    assert [index for index, _ in admit([b"a", b""])[2]] == [1]
    assert [index for index, _ in admit([b"x" * (RECORD_BYTES_MAX + 1)])[2]] == [0]
    assert [index for index, _ in admit([None])[2]] == [0]
    assert admit([b"x" * (RECORD_BYTES_MAX + 1)], RECORD_BYTES_MAX + 1).rejected == []
    ((_, why),) = admit([b"xxx"], 2).rejected
    assert str(why) == "the record has 3 bytes; at most 2 are allowed (max_record)"
    assert rejection(b"a") is None
