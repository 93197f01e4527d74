"""Catalogs that participants publish, and the streams that a reader finds by them.

Theory of operation. Each participant has a log of its own, its catalog, which no other participant
may write. For each of its pipelines it says there, signed, which streams others may read and which
stages it offers. An entry is soft state: it holds for a lease, and its owner writes it anew before
that is over. Only the newest entry of a pipeline counts, so the log may be compacted. The log state
over all catalogs is the Lookup (Medusa): for the names of a participant and a stream it returns all
that is needed to read the stream, or the reason why it cannot be read.

A lookup decides what is read, never what is believed: the boundary records of a stream are judged
by themselves (``stream_signers``). So a false entry can keep a reader from beginning, and cannot
give it rows that the owner did not sign.

Invariants:
    FE1  an entry counts in its participant's own catalog, signed with a key of that participant's
         that counted when the log took it, and that the entry names.
    FE2  an entry whose time is not about the log's, or that is not newer than the last of the same
         pipeline, changes nothing: a replayed one does not bring back what was.
    FE3  an entry holds from when the log took it until its lease is over. After that its streams
         are shown as unknown since then, and nothing is found by it.
    FE4  a pipeline has one owner: of two that list it neither is found, except by a reader that
         pins the key of one.
    FE5  a reader that pins keys finds only what one of them has signed.
    FE6  a stream that another participant's offer makes is found while that participant lists the
         offer, in the same version and for this owner.
    FE7  what is found can be read: its buckets are as wide as the reader's, and its records are of
         versions that the reader knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from anabranch.protocol.federation.contract_log import WORD_SKEW_MS, VerifyAt
from anabranch.protocol.federation.published_keys import PublishedKeys
from anabranch.protocol.federation.statements import Signature, is_signed
from anabranch.protocol.identifiers import is_name

LEASE_MS_MAX: Final = 3_600_000
"""Maximum lease of an entry, in ms: a participant that is gone for good is listed no longer than
this.
"""

CATALOG_PIPELINES_MAX: Final = 100
"""Maximum number of pipelines of one participant: bounds what a foreign log can make a reader hold.
"""


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """A kind of record in a stream's boundary log, and the version that is written."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class ListedStream:
    """A stream that others may read."""

    stream: str
    record: bytes
    """Its columns: an Avro schema as JSON."""
    bucket_ms: int
    replicas: int
    """Writers of the stream."""
    hops: int
    """Stages from a source to the stream, its own included."""
    out_of_orderness_ms: int
    """The largest of the sources that it is made from."""
    formats: tuple[RecordFormat, ...]
    signers: tuple[str, ...]
    """Participants that may sign the stream, besides its owner."""
    made_by: str
    """The participant whose offer makes it; empty: the owner has its own code."""
    offer: str
    offer_version: int


@dataclass(frozen=True, slots=True)
class ListedOffer:
    """A stage that its owner runs for others."""

    offer: str
    version: int
    terms: bytes
    """Terms of the offer as JSON, without the code."""
    is_for_all: bool
    offered_to: tuple[str, ...]
    """Participants that may use it, where it is not for all."""

    def is_for(self, participant: str) -> bool:
        """Return whether ``participant`` may use the offer."""
        return self.is_for_all or participant in self.offered_to


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """Everything that a participant publishes of one of its pipelines."""

    SIGNED_AS: ClassVar[str] = "catalog_entry"

    participant: str
    pipeline: str
    at_ms: int
    """Time at which the owner wrote the entry, by the owner's clock, in ms. It grows from entry to
    entry of a pipeline.
    """
    lease_ms: int
    public: bytes
    """The key that signs it."""
    streams: tuple[ListedStream, ...]
    offers: tuple[ListedOffer, ...]

    def _names(self) -> Iterator[str]:
        """Return all names in the listing: topics are named after them, and people see them."""
        yield self.pipeline
        for stream in self.streams:
            yield from (stream.stream, *stream.signers, *(each.name for each in stream.formats))
            yield from filter(None, (stream.made_by, stream.offer))
        for offer in self.offers:
            yield from (offer.offer, *offer.offered_to)

    def mistake(self) -> str:
        """Return the entry's impossible statement in words; empty if there is none."""
        if not 0 < self.lease_ms <= LEASE_MS_MAX:
            return "a lease that none has"
        if not all(map(is_name, self._names())):
            return "a name that none has"
        streams = [each.stream for each in self.streams]
        return "one stream twice" if len(set(streams)) < len(streams) else ""

    def find_stream(self, name: str) -> ListedStream | None:
        """Return the stream of that name."""
        return next((each for each in self.streams if each.stream == name), None)


@dataclass(frozen=True, slots=True)
class Listing:
    """An entry that counts, and until when."""

    entry: CatalogEntry
    expires_ms: int
    """Time of the lease's end, by the log's time, in ms (FE3)."""

    def is_current(self, now_ms: int) -> bool:
        """Return whether the lease of the listing has not expired."""
        return now_ms < self.expires_ms


@dataclass(frozen=True, slots=True)
class WantedStream:
    """Stream that a reader asks for."""

    participant: str
    stream: str
    bucket_ms: int
    """The width of the reader's own buckets."""
    pipeline: str = ""
    """Name of the pipeline; empty: the only one of the participant that lists the stream."""
    pinned: tuple[bytes, ...] = ()
    """Public keys that alone are believed (FE5); empty: those that the participant has published.
    """


@dataclass(frozen=True, slots=True)
class FoundStream:
    """Facts needed to read a stream."""

    entry: CatalogEntry
    listed: ListedStream


@dataclass(frozen=True, slots=True)
class NotFound:
    """Reason for which a stream is not found."""

    why: str
    since_ms: int | None = None
    """Since when; None: no time belongs to the reason."""


class Lookup:
    """The log state over all catalogs. Not thread-safe. After a crash: replay."""

    def __init__(
        self, keys: PublishedKeys, verify: VerifyAt, formats: Collection[RecordFormat]
    ) -> None:
        """Begin without entries. ``formats``: the kinds and versions of records that this reader
        knows.
        """
        self._keys, self._verify = keys, verify
        self._formats = frozenset(formats)
        self._listings: dict[str, dict[str, Listing]] = {}
        self.rejected: Counter[tuple[str, str]] = Counter()
        """(participant, reason) -> entries in the catalog of that participant that do not count."""

    def add(
        self, participant: str, entry: CatalogEntry, signature: Signature, appended_ms: int
    ) -> str:
        """Count an entry in the catalog of ``participant``, in its order. Return why it does not
        count, or an empty text.
        """
        why = self._why_not(participant, entry, signature, appended_ms)
        if why:
            self.reject(participant, why)
        else:
            listing = Listing(entry, appended_ms + entry.lease_ms)
            self._listings.setdefault(participant, {})[entry.pipeline] = listing
        return why

    def reject(self, participant: str, why: str) -> None:
        """Note a record in the catalog of ``participant`` that is no entry."""
        self.rejected[participant, why] += 1

    def listings(self) -> list[Listing]:
        """Return all known listings, current or not, by participant and pipeline."""
        return [
            listings[pipeline]
            for _, listings in sorted(self._listings.items())
            for pipeline in sorted(listings)
        ]

    def rivals(self, listing: Listing, now_ms: int) -> list[str]:
        """Other participants that list the same pipeline now (FE4)."""
        entry = listing.entry
        return [
            participant
            for participant, listings in sorted(self._listings.items())
            if participant != entry.participant
            and entry.pipeline in listings
            and listings[entry.pipeline].is_current(now_ms)
        ]

    def find(self, wanted: WantedStream, now_ms: int) -> FoundStream | NotFound:
        """Return the stream that a reader names, as its owner lists it at this time."""
        found = self._one_listing(wanted, now_ms)
        if isinstance(found, NotFound):
            return found
        entry, owner = found.entry, wanted.participant
        listed = entry.find_stream(wanted.stream)
        assert listed is not None, "looked for"  # noqa: S101 - by _one_listing
        if wanted.pinned and entry.public not in wanted.pinned:
            return NotFound(f"what {owner} lists is signed by none of the keys that are pinned")
        rivals = self.rivals(found, now_ms)
        if rivals and not wanted.pinned:
            return NotFound(
                f"{owner} and {', '.join(rivals)} both list pipeline {entry.pipeline} as their own;"
                " pin the owner's key"
            )
        why = self._why_not_made(owner, listed, now_ms) or self._why_not_read(wanted, listed)
        return NotFound(why) if why else FoundStream(entry, listed)

    def _why_not(
        self, participant: str, entry: CatalogEntry, signature: Signature, appended_ms: int
    ) -> str:
        if entry.participant != participant:
            return "an entry of somebody else"
        if not is_signed(
            entry, participant, signature, lambda by, what: self._verify(by, what, appended_ms)
        ):
            return "not signed with a key of its participant that counted then"
        if self._keys.find(participant, signature.key_id, appended_ms) != entry.public:
            return "signed with another key than it names"
        if abs(entry.at_ms - appended_ms) > WORD_SKEW_MS:
            return "out of its time"
        listings = self._listings.get(participant, {})
        last = listings.get(entry.pipeline)
        if last is not None and entry.at_ms <= last.entry.at_ms:
            return "not newer than the last"
        if last is None and len(listings) >= CATALOG_PIPELINES_MAX:
            return "more pipelines than a participant has"
        return entry.mistake()

    def _one_listing(self, wanted: WantedStream, now_ms: int) -> Listing | NotFound:
        """Return the current one of the listings that name the stream, or why there is none."""
        owner = wanted.participant
        known = [
            listing
            for listing in self._listings.get(owner, {}).values()
            if wanted.pipeline in ("", listing.entry.pipeline)
        ]
        where = f" in pipeline {wanted.pipeline}" if wanted.pipeline else ""
        if not known:
            rejected = sorted(why for participant, why in self.rejected if participant == owner)
            but = (
                f"; what stands in its catalog is rejected: {', '.join(rejected)}"
                if rejected
                else ""
            )
            return NotFound(f"{owner} lists nothing{where}{but}")
        listing = [each for each in known if each.entry.find_stream(wanted.stream) is not None]
        if not listing:
            names = sorted({each.stream for of in known for each in of.entry.streams})
            there = ", ".join(names) or "no stream"
            return NotFound(f"{owner} does not list {wanted.stream}{where}; it lists {there}")
        current = [each for each in listing if each.is_current(now_ms)]
        if not current:
            since_ms = max(each.expires_ms for each in listing)
            return NotFound(f"what {owner} lists is not refreshed, and unknown", since_ms)
        if len(current) > 1:
            pipelines = ", ".join(sorted(each.entry.pipeline for each in current))
            return NotFound(
                f"{owner} lists {wanted.stream} in several pipelines, {pipelines}; name one"
            )
        return current[0]

    def _why_not_made(self, owner: str, listed: ListedStream, now_ms: int) -> str:
        """Return why the offer that makes ``listed`` is not listed for ``owner``; empty: it is, or
        no offer makes the stream (FE6).
        """
        if not listed.made_by:
            return ""
        offers = [
            offer
            for listing in self._listings.get(listed.made_by, {}).values()
            if listing.is_current(now_ms)
            for offer in listing.entry.offers
            if offer.offer == listed.offer and offer.is_for(owner)
        ]
        made = f"{listed.stream} is made by the offer {listed.offer} of {listed.made_by}"
        if not offers:
            return f"{made}, which {listed.made_by} does not list for {owner}"
        if listed.offer_version not in {offer.version for offer in offers}:
            return f"{made} in version {listed.offer_version}, which {listed.made_by} does not list"
        return ""

    def _why_not_read(self, wanted: WantedStream, listed: ListedStream) -> str:
        """Return why the reader cannot read the records of ``listed``; empty: it can (FE7)."""
        if listed.bucket_ms != wanted.bucket_ms:
            return (
                f"buckets of {listed.stream} are {listed.bucket_ms} ms wide, and"
                f" {wanted.bucket_ms} ms here; both pipelines need the same `bucket`"
            )
        newer = sorted(
            f"{each.name} v{each.version}" for each in set(listed.formats) - self._formats
        )
        if newer:
            return (
                f"{listed.stream} has records that are not known here: {', '.join(newer)}; use the"
                " version of anabranch that its owner uses"
            )
        return ""
