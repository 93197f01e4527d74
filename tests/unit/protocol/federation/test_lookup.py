"""Tests of which catalog entries count, and what a reader finds by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.protocol.federation.contract_log import WORD_SKEW_MS
from anabranch.protocol.federation.lookup import (
    CATALOG_PIPELINES_MAX,
    LEASE_MS_MAX,
    FoundStream,
    NotFound,
    RecordFormat,
)
from harness.catalogs import (
    BEGIN_MS,
    CRAWLING,
    LEASE_MS,
    SLOW,
    SPEEDS,
    WANTED,
    Catalogs,
    entry,
    public,
    signature,
)

FOUND = FoundStream(entry(), SPEEDS)
SOUTH = entry("south", streams=(), offers=(SLOW,))


def catalogs(*entries: Any) -> Catalogs:
    made = Catalogs()
    for each in entries:
        assert made.add(each) == ""
    return made


def why(of: Catalogs, now_ms: int = BEGIN_MS, **wanted: Any) -> str:
    found = of.lookup.find(replace(WANTED, **wanted), now_ms)
    return found.why if isinstance(found, NotFound) else ""


def test_who_names_a_participant_and_its_stream_finds_what_it_takes_to_read_it() -> None:
    made = catalogs(entry())
    assert made.lookup.find(WANTED, BEGIN_MS) == FOUND
    assert made.lookup.find(replace(WANTED, pipeline="north"), BEGIN_MS) == FOUND
    assert not made.lookup.rejected


def test_what_nobody_lists_is_not_found_and_what_there_is_is_named() -> None:
    made = catalogs(entry())
    assert why(made, participant="west") == "west lists nothing"
    assert why(made, stream="tolls") == "north does not list tolls; it lists speeds"
    assert why(made, pipeline="other") == "north lists nothing in pipeline other"
    assert why(catalogs(entry(streams=()))) == "north does not list speeds; it lists no stream"


@pytest.mark.parametrize(
    ("where", "by", "fields", "reason"),
    [
        ("south", "south", {"public": public("south")}, "an entry of somebody else"),
        ("north", "south", {}, "not signed with a key of its participant that counted then"),
        ("north", "", {"public": public("south")}, "signed with another key than it names"),
        ("north", "", {"public": public("north", "2")}, "signed with another key than it names"),
    ],
)
def test_fe1_an_entry_counts_in_its_participants_catalog_with_the_key_that_it_names(
    where: str, by: str, fields: dict[str, Any], reason: str
) -> None:
    made = Catalogs()
    assert made.add(entry(**fields), where=where, by=by) == reason
    assert made.lookup.rejected == {(where, reason): 1}
    assert made.lookup.listings() == []
    addition = f"; what stands in its catalog is rejected: {reason}" if where == "north" else ""
    assert why(made) == f"north lists nothing{addition}"


def test_fe1_a_key_counts_until_it_is_revoked() -> None:
    made = Catalogs()
    made.revoke("north", "1", BEGIN_MS + 10)
    assert made.add(entry(), BEGIN_MS + 10) == (
        "not signed with a key of its participant that counted then"
    )
    assert made.add(entry(), BEGIN_MS + 9) == ""


def test_fe2_an_entry_that_is_replayed_or_dated_elsewhere_changes_nothing() -> None:
    old, new = entry(), entry(at_ms=BEGIN_MS + 1, streams=(replace(SPEEDS, hops=3),))
    made = catalogs(old, new)
    for again in (old, new):
        assert made.add(again, BEGIN_MS + 2) == "not newer than the last"
    assert [each.entry for each in made.lookup.listings()] == [new]
    for skew_ms in (-WORD_SKEW_MS - 1, WORD_SKEW_MS + 1):
        later = entry(at_ms=BEGIN_MS + 100)
        assert made.add(later, later.at_ms + skew_ms) == "out of its time"
    for skew_ms in (-WORD_SKEW_MS, WORD_SKEW_MS):
        assert catalogs().add(entry(), BEGIN_MS + skew_ms) == ""


def test_fe3_an_entry_that_is_not_refreshed_is_unknown_since_its_lease_was_over() -> None:
    made = catalogs()
    assert made.add(entry(), BEGIN_MS + 7) == "", "by the log's time, not its own"
    end_ms = BEGIN_MS + 7 + LEASE_MS
    assert made.lookup.find(WANTED, end_ms - 1) == FOUND
    lost = made.lookup.find(WANTED, end_ms)
    assert lost == NotFound("what north lists is not refreshed, and unknown", end_ms)
    assert [each.is_current(end_ms) for each in made.lookup.listings()] == [False], "it is shown"
    made.add(entry(at_ms=end_ms), end_ms)
    assert isinstance(made.lookup.find(WANTED, end_ms), FoundStream)


def test_fe3_a_stream_that_the_newest_entry_does_not_list_is_gone_at_once() -> None:
    made = catalogs(entry(), entry(at_ms=BEGIN_MS + 1, streams=()))
    assert why(made) == "north does not list speeds; it lists no stream"


def test_fe4_of_a_pipeline_that_two_list_neither_is_found_but_by_who_pins_a_key() -> None:
    made = catalogs(entry(), entry("south", "north"), entry("east", "north"))
    both = "both list pipeline north as their own; pin the owner's key"
    assert why(made) == f"north and east, south {both}"
    assert why(made, participant="south") == f"south and east, north {both}"
    assert made.lookup.find(replace(WANTED, pinned=(public("north"),)), BEGIN_MS) == FOUND


def test_fe4_who_does_not_refresh_its_claim_loses_it() -> None:
    made = catalogs(entry("south", "north"), entry(at_ms=BEGIN_MS + 10))
    rivals = [made.lookup.rivals(each, BEGIN_MS + LEASE_MS) for each in made.lookup.listings()]
    assert rivals == [[], ["north"]], "north's is current, south's is not"
    assert why(made, BEGIN_MS + LEASE_MS) == ""


def test_one_name_in_two_pipelines_of_a_participant_is_found_by_the_pipeline() -> None:
    made = catalogs(entry(), entry(pipeline="other"))
    assert why(made) == "north lists speeds in several pipelines, north, other; name one"
    assert why(made, pipeline="other") == ""
    assert catalogs(entry(), entry(pipeline="other", streams=())).lookup.find(WANTED, BEGIN_MS) == (
        FOUND
    )


def test_fe5_who_pins_keys_finds_only_what_one_of_them_has_signed() -> None:
    made = catalogs(entry())
    other, own = public("north", "2"), public("north")
    assert why(made, pinned=(other,)) == (
        "what north lists is signed by none of the keys that are pinned"
    )
    assert why(made, pinned=(other, own)) == ""


@pytest.mark.parametrize(
    ("south", "reason"),
    [
        (replace(SOUTH, offers=()), ", which south does not list for north"),
        (
            replace(SOUTH, offers=(replace(SLOW, offered_to=("east",)),)),
            ", which south does not list for north",
        ),
        (
            replace(SOUTH, offers=(replace(SLOW, version=3),)),
            " in version 2, which south does not list",
        ),
        (replace(SOUTH, lease_ms=1), ", which south does not list for north"),
        (SOUTH, ""),
        (replace(SOUTH, offers=(replace(SLOW, is_for_all=True, offered_to=()),)), ""),
    ],
)
def test_fe6_a_stream_that_an_offer_makes_is_found_while_that_is_listed(
    south: Any, reason: str
) -> None:
    made = catalogs(entry(streams=(SPEEDS, CRAWLING)), south)
    begins = "crawling is made by the offer slow of south" if reason else ""
    assert why(made, BEGIN_MS + 1, stream="crawling") == f"{begins}{reason}"
    assert why(made, BEGIN_MS + 1) == "", "the others do not depend on it"


def test_fe7_a_stream_whose_buckets_or_records_cannot_be_read_is_not_found() -> None:
    newer = replace(SPEEDS, formats=(*SPEEDS.formats, RecordFormat("log_snapshot", 7)))
    assert why(catalogs(entry()), bucket_ms=500) == (
        "buckets of speeds are 250 ms wide, and 500 ms here; both pipelines need the same `bucket`"
    )
    assert why(catalogs(entry(streams=(newer,)))) == (
        "speeds has records that are not known here: log_snapshot v7; use the version of anabranch"
        " that its owner uses"
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"lease_ms": 0}, "a lease that none has"),
        ({"lease_ms": LEASE_MS_MAX + 1}, "a lease that none has"),
        ({"lease_ms": LEASE_MS_MAX}, ""),
        ({"pipeline": "A"}, "a name that none has"),
        ({"streams": (replace(SPEEDS, stream="a.b"),)}, "a name that none has"),
        ({"streams": (replace(SPEEDS, signers=("\x1b[2J",)),)}, "a name that none has"),
        ({"streams": (replace(SPEEDS, made_by="", offer="\x1b"),)}, "a name that none has"),
        ({"streams": (replace(CRAWLING, made_by="\x1b"),)}, "a name that none has"),
        ({"streams": (replace(CRAWLING, offer="\x1b"),)}, "a name that none has"),
        (
            {"streams": (replace(SPEEDS, formats=(RecordFormat("\x1b", 1),)),)},
            "a name that none has",
        ),
        ({"offers": (replace(SLOW, offer=""),)}, "a name that none has"),
        ({"offers": (replace(SLOW, offered_to=("North",)),)}, "a name that none has"),
        ({"streams": (SPEEDS, replace(SPEEDS, hops=2))}, "one stream twice"),
    ],
)
def test_what_no_entry_can_say_is_rejected(fields: dict[str, Any], reason: str) -> None:
    assert Catalogs().add(entry(**fields)) == reason


def test_a_participant_has_so_many_pipelines_at_most() -> None:
    made = catalogs(*(entry(pipeline=f"p{n}") for n in range(CATALOG_PIPELINES_MAX)))
    assert made.add(entry(pipeline="more")) == "more pipelines than a participant has"
    assert made.add(entry(pipeline="p0", at_ms=BEGIN_MS + 1)) == ""


def test_a_record_that_is_no_entry_is_shown_too() -> None:
    made = Catalogs()
    made.lookup.reject("north", "not a record of this log")
    assert why(made) == (
        "north lists nothing; what stands in its catalog is rejected: not a record of this log"
    )


def test_a_signature_is_of_one_entry_alone() -> None:
    made = Catalogs()
    other = signature(entry(at_ms=BEGIN_MS + 1))
    assert made.lookup.add("north", entry(), other, BEGIN_MS).startswith("not signed")
