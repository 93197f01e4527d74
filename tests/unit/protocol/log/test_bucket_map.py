from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.log.bucket_map import BucketMap


def filled(*buckets: int) -> BucketMap[str]:
    found: BucketMap[str] = BucketMap()
    for bucket in buckets:
        found[bucket] = str(bucket)
    return found


def test_it_ascends_however_it_was_filled() -> None:
    found = filled(5, 1, 9, 5, 3)
    assert list(found) == [(1, "1"), (3, "3"), (5, "5"), (9, "9")]
    assert (len(found), found[9], found.get(9), found.get(2)) == (4, "9", "9", None)


def test_ranges() -> None:
    found = filled(1, 3, 5, 9)
    assert found.between(2, 10**15) == [3, 5, 9]
    assert found.between(1, 5, 2) == [1, 3]
    assert found.between(3, 4, 9) == [3]
    assert found.between(6, 4) == found.between(1, 9, 0) == []


def test_taking_out() -> None:
    found = filled(1, 3, 5, 9)
    assert found.pop_between(2, 5) == [(3, "3"), (5, "5")]
    assert found.pop_upto(1) == [(1, "1")]
    found[4] = "4"
    assert list(found) == [(4, "4"), (9, "9")]
    found.clear()
    assert found.pop_upto(99) == list(found) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("set", "upto", "between")), st.integers(0, 20), st.integers(0, 20)
        ),
        max_size=40,
    )
)
def test_it_is_a_dictionary_in_order(steps: list[tuple[str, int, int]]) -> None:
    found: BucketMap[int] = BucketMap()
    plain: dict[int, int] = {}
    for what, a, b in steps:
        if what == "set":
            found[a] = plain[a] = b
            continue
        first, last = (0, a) if what == "upto" else (a, b)
        assert found.between(first, last) == sorted(k for k in plain if first <= k <= last)
        gone = found.pop_upto(a) if what == "upto" else found.pop_between(a, b)
        assert gone == sorted((k, v) for k, v in plain.items() if first <= k <= last)
        plain = {k: v for k, v in plain.items() if not first <= k <= last}
        assert list(found) == sorted(plain.items())
