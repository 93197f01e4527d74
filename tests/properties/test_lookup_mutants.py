"""Bugs planted in what is found in the catalogs: each is found, and without a bug nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch.protocol.federation.contract_log import WORD_SKEW_MS
from anabranch.protocol.federation.lookup import FoundStream, RecordFormat, WantedStream
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
)
from simulation.planting import Mutant, planted

_L = "protocol.federation.lookup"
MUTANTS = [
    Mutant(
        "in_anybodys_catalog",
        f"{_L}:Lookup._why_not",
        "entry.participant != participant",
        "False",
        "FE1",
    ),
    Mutant(
        "signed_by_nobody",
        f"{_L}:Lookup._why_not",
        'return "not signed with a key of its participant that counted then"',
        "pass",
        "FE1",
    ),
    Mutant(
        "names_another_key",
        f"{_L}:Lookup._why_not",
        "self._keys.find(participant, signature.key_id, appended_ms) != entry.public",
        "False",
        "FE1",
    ),
    Mutant(
        "old_entries_come_back",
        f"{_L}:Lookup._why_not",
        "entry.at_ms <= last.entry.at_ms",
        "False",
        "FE2",
    ),
    Mutant(
        "replayed_for_ever",
        f"{_L}:Lookup._why_not",
        "abs(entry.at_ms - appended_ms) > WORD_SKEW_MS",
        "False",
        "FE2",
    ),
    Mutant(
        "lease_without_end", f"{_L}:Listing.is_current", "now_ms < self.expires_ms", "True", "FE3"
    ),
    Mutant(
        "lease_by_its_own_clock",
        f"{_L}:Lookup.add",
        "appended_ms + entry.lease_ms",
        "entry.at_ms + entry.lease_ms",
        "FE3",
    ),
    Mutant(
        "whoever_is_asked_for_owns_it",
        f"{_L}:Lookup.find",
        "rivals and not wanted.pinned",
        "False",
        "FE4",
    ),
    Mutant(
        "a_claim_for_ever",
        f"{_L}:Lookup.rivals",
        "and listings[entry.pipeline].is_current(now_ms)",
        "",
        "FE4",
    ),
    Mutant(
        "pinned_for_nothing",
        f"{_L}:Lookup.find",
        "wanted.pinned and entry.public not in wanted.pinned",
        "False",
        "FE5",
    ),
    Mutant(
        "made_by_an_offer_that_is_over",
        f"{_L}:Lookup._why_not_made",
        "if listing.is_current(now_ms)",
        "if True",
        "FE6",
    ),
    Mutant(
        "made_by_an_offer_for_others",
        f"{_L}:Lookup._why_not_made",
        "and offer.is_for(owner)",
        "",
        "FE6",
    ),
    Mutant(
        "made_by_any_version",
        f"{_L}:Lookup._why_not_made",
        "listed.offer_version not in {offer.version for offer in offers}",
        "False",
        "FE6",
    ),
    Mutant(
        "buckets_of_any_width",
        f"{_L}:Lookup._why_not_read",
        "listed.bucket_ms != wanted.bucket_ms",
        "False",
        "FE7",
    ),
    Mutant(
        "records_of_any_version",
        f"{_L}:Lookup._why_not_read",
        "if newer:",
        "if False:",
        "FE7",
    ),
]


def finds(catalogs: Catalogs, now_ms: int = BEGIN_MS, wanted: WantedStream = WANTED) -> bool:
    return isinstance(catalogs.lookup.find(wanted, now_ms), FoundStream)


def entries() -> Iterator[str]:
    """North lists its stream; others try what they may not."""
    world = Catalogs()
    world.add(entry(public=public("south")), where="south", by="south")
    world.add(entry(), where="south", by="north")
    if world.lookup.listings():
        yield "a participant is listed in somebody else's catalog"
    world.add(entry(), by="south")
    world.add(entry(public=public("north", "2")))
    if world.lookup.listings():
        yield "an entry counts that its participant has not signed with the key that it names"
    old, new = entry(), entry(at_ms=BEGIN_MS + 1, streams=())
    for each in (old, new):
        world.add(each)
    world.add(old, BEGIN_MS + 2)
    if finds(world):
        yield "a stream comes back that is listed no more"
    world = Catalogs()
    world.add(entry(), BEGIN_MS + WORD_SKEW_MS + 1)
    if finds(world):
        yield "an entry of long ago counts"


def leases() -> Iterator[str]:
    """What is not refreshed."""
    world = Catalogs()
    world.add(entry(), BEGIN_MS + 10)
    if not finds(world, BEGIN_MS + 9 + LEASE_MS):
        yield "an entry is over before its lease is"
    if finds(world, BEGIN_MS + 10 + LEASE_MS):
        yield "an entry is current after its lease"


def rivals() -> Iterator[str]:
    """South lists north's pipeline, and goes away."""
    world = Catalogs()
    world.add(entry("south", "north"))
    world.add(entry(at_ms=BEGIN_MS + 10))
    pinned = replace(WANTED, pinned=(public("north"),))
    if finds(world) or finds(world, wanted=replace(WANTED, participant="south")):
        yield "one of two owners is found"
    if not finds(world, wanted=pinned):
        yield "the owner whose key is pinned is not found"
    if finds(world, wanted=replace(pinned, participant="south")):
        yield "another than the owner whose key is pinned is found"
    if not finds(world, BEGIN_MS + LEASE_MS):
        yield "a claim that is over keeps the owner from being found"


def offers() -> Iterator[str]:
    """A stream that south makes for north."""
    crawling = replace(WANTED, stream="crawling")
    for offer, lease_ms, is_there in (
        (SLOW, LEASE_MS, True),
        (SLOW, 1, False),
        (replace(SLOW, offered_to=("east",)), LEASE_MS, False),
        (replace(SLOW, version=3), LEASE_MS, False),
    ):
        world = Catalogs()
        world.add(entry(streams=(CRAWLING,)))
        world.add(entry("south", streams=(), offers=(offer,), lease_ms=lease_ms))
        if finds(world, BEGIN_MS + 1, crawling) is not is_there:
            yield f"{offer} for {lease_ms} ms: found or not, and should be {is_there}"


def readable() -> Iterator[str]:
    """Streams that this reader cannot read."""
    newer = replace(SPEEDS, formats=(RecordFormat("boundary_record", 2),))
    for stream in (replace(SPEEDS, bucket_ms=500), newer):
        world = Catalogs()
        world.add(entry(streams=(stream,)))
        if finds(world):
            yield f"{stream} is found"


def judge() -> Iterator[str]:
    for tried in (entries, leases, rivals, offers, readable):
        yield from tried()


def test_without_a_bug_nothing_is_found() -> None:
    assert list(judge()) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with planted(mutant):
        assert list(judge()) != []
