"""Entries of a catalog, and who has signed them."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha512
from typing import Any

from anabranch.protocol.federation.lookup import (
    CatalogEntry,
    ListedOffer,
    ListedStream,
    Lookup,
    RecordFormat,
    WantedStream,
)
from anabranch.protocol.federation.published_keys import PublishedKey, PublishedKeys
from anabranch.protocol.federation.statements import Signature, signed_bytes

BEGIN_MS = 1_000_000
LEASE_MS = 60_000
FORMAT = RecordFormat("boundary_record", 1)
SPEEDS = ListedStream(
    stream="speeds",
    record=b'{"type": "record", "name": "r", "fields": [{"name": "segment", "type": "long"}]}',
    bucket_ms=250,
    replicas=1,
    hops=1,
    out_of_orderness_ms=0,
    formats=(FORMAT,),
    signers=("south",),
    made_by="",
    offer="",
    offer_version=0,
)
SLOW = ListedOffer("slow", 2, b"{}", is_for_all=False, offered_to=("north",))
CRAWLING = replace(SPEEDS, stream="crawling", made_by="south", offer="slow", offer_version=2)
WANTED = WantedStream("north", "speeds", 250)


def public(participant: str, key_id: str = "1") -> bytes:
    return f"{participant}/{key_id}".encode().ljust(32, b".")


def entry(participant: str = "north", pipeline: str = "", **fields: Any) -> CatalogEntry:
    """North's ``speeds``, unless ``fields`` say otherwise."""
    made = CatalogEntry(
        participant=participant,
        pipeline=pipeline or participant,
        at_ms=BEGIN_MS,
        lease_ms=LEASE_MS,
        public=public(participant),
        streams=(SPEEDS,),
        offers=(),
    )
    return replace(made, **fields)


def signature(of: CatalogEntry, by: str = "", key_id: str = "1") -> Signature:
    """Return a signature that only ``verify`` accepts."""
    return Signature(by or of.participant, key_id, sha512(signed_bytes(of)).digest())


class Catalogs:
    """The catalogs of north, south and east, each with two keys that count from the beginning."""

    def __init__(self) -> None:
        self.keys = PublishedKeys()
        for who in ("north", "south", "east"):
            for key_id in ("1", "2"):
                self.keys.add(who, PublishedKey(who, key_id, public(who, key_id)), 0)
        self.lookup = Lookup(self.keys, self._verify, [FORMAT])

    def _verify(self, by: Signature, message: bytes, at_ms: int) -> bool:
        is_known = self.keys.find(by.participant, by.key_id, at_ms) is not None
        return is_known and by.value == sha512(message).digest()

    def revoke(self, who: str, key_id: str, at_ms: int) -> None:
        word = PublishedKey(who, key_id, public(who, key_id), is_revoked=True)
        assert self.keys.add(who, word, at_ms) == ""

    def add(
        self, what: CatalogEntry, appended_ms: int = 0, *, where: str = "", by: str = ""
    ) -> str:
        """Append an entry to its participant's catalog, signed by that participant."""
        signed = signature(what, by)
        return self.lookup.add(where or what.participant, what, signed, appended_ms or what.at_ms)
