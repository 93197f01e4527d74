"""``protocol.log.given_up``: what an operator gave up, and what lacks it."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import MISSING_STREAMS_MAX
from anabranch.protocol.log import given_up as under_test
from anabranch.protocol.log.given_up import GivenUpBuckets, Times, named, of_results, to_give_up
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, GivenUp


def buckets(*ranges: GivenUp) -> GivenUpBuckets:
    found = GivenUpBuckets()
    for each in ranges:
        found.add([each])
    return found


class TestBuckets:
    def test_are_named_after_all_that_they_lack(self) -> None:
        found = buckets(GivenUp("b", 5, 9), GivenUp("a", 8, 12), GivenUp("b", 20, 20))
        assert [found.names(bucket) for bucket in (4, 5, 8, 12, 13, 20)] == [
            (),
            ("b",),
            ("a", "b"),
            ("a",),
            (),
            ("b",),
        ]

    def test_ranges_that_touch_are_one(self) -> None:
        found = buckets(
            GivenUp("a", 8, 9), GivenUp("a", 1, 3), GivenUp("a", 4, 6), GivenUp("a", 2, 5)
        )
        assert found.ranges() == (GivenUp("a", 1, 6), GivenUp("a", 8, 9))
        found.add([GivenUp("a", 7, 7)])
        assert found.ranges() == (GivenUp("a", 1, 9),)

    def test_too_many_name_more_buckets_never_fewer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(under_test, "GIVEN_UP_MAX", 2)
        found = buckets(
            GivenUp("a", 1, 1),
            GivenUp("a", 5, 5),
            GivenUp("a", 9, 9),
            GivenUp("b", 1, 1),
            GivenUp("c", 1, 1),
        )
        assert found.ranges() == (GivenUp("a", 1, 5), GivenUp("a", 9, 9), GivenUp("b", 1, 1))


class TestResults:
    def test_without_state_it_is_the_bucket_itself(self) -> None:
        inputs = [buckets(GivenUp("a", 5, 9)), buckets(GivenUp("b", 7, 7))]
        assert of_results(inputs, 6, 20, None, is_stateful=False) == (
            GivenUp("a", 6, 9),
            GivenUp("b", 7, 7),
        )
        assert of_results(inputs, 10, 20, None, is_stateful=False) == ()

    def test_with_a_state_horizon_it_ends_so_much_later(self) -> None:
        inputs = [buckets(GivenUp("a", 5, 9))]
        assert of_results(inputs, 10, 20, 4, is_stateful=True) == (GivenUp("a", 10, 13),)
        assert of_results(inputs, 14, 20, 4, is_stateful=True) == ()

    def test_with_state_and_without_a_state_horizon_it_does_not_end(self) -> None:
        assert of_results([buckets(GivenUp("a", 5, 9))], 1_000, 1_001, None, is_stateful=True) == (
            GivenUp("a", 1_000, 1_001),
        )

    def test_what_is_cut_in_any_way_names_the_same(self) -> None:
        inputs = [buckets(GivenUp("a", 5, 9), GivenUp("b", 1, 6)), buckets(GivenUp("a", 12, 12))]
        whole, cut = buckets(), buckets()
        whole.add(of_results(inputs, 1, 30, 2, is_stateful=True))
        for first in range(1, 31):
            cut.add(of_results(inputs, first, first, 2, is_stateful=True))
        assert whole.ranges() == cut.ranges() == (GivenUp("a", 5, 14), GivenUp("b", 1, 8))


class TestRecord:
    RECORD = BoundaryRecord("0", 1, BatchId("l", 1), None, 9, missing=("x",))

    def test_a_stable_one_says_which_of_its_buckets_lack_what(self) -> None:
        assert named(self.RECORD, ()) is self.RECORD
        found = named(self.RECORD, [GivenUp("a", 1, 9)])
        assert (found.given_up, found.missing) == ((GivenUp("a", 1, 9),), ("x",))

    def test_a_tentative_one_names_it_like_all_that_is_missing(self) -> None:
        tentative = BoundaryRecord(
            "0",
            1,
            BatchId("l", 1),
            None,
            9,
            kind=BoundaryKind.TENTATIVE,
            branch=(1, 1),
            missing=("x",),
        )
        found = named(tentative, [GivenUp("a", 1, 9)])
        assert (found.given_up, found.missing) == ((), ("a", "x"))
        assert (
            len(named(tentative, [GivenUp(str(i), 1, 9) for i in range(400)]).missing)
            == MISSING_STREAMS_MAX
        )


class TestOperator:
    def test_gives_up_from_where_the_source_stands(self) -> None:
        assert to_give_up("a", 10, Times(1_000, 2_049), 100, "then") == GivenUp("a", 11, 20)
        assert to_give_up("a", 10, Times(500, 2_000), 100, "then") == GivenUp("a", 11, 20)

    @pytest.mark.parametrize(
        ("from_ms", "until_ms", "why"),
        [
            (1_001, 2_000, "complete up to then only.*--from then"),
            (500, 1_099, "nothing to give up"),
            (500, 500, "--until is not after --from"),
        ],
    )
    def test_never_more_than_was_asked_for(self, from_ms: int, until_ms: int, why: str) -> None:
        with pytest.raises(ConfigurationError, match=why):
            to_give_up("a", 10, Times(from_ms, until_ms), 100, "then")
