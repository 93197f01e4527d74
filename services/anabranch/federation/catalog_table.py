"""Table of the entries in the catalogs of a federation, for people and programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from anabranch.codec import record_schema
from anabranch.codec.avro_records import fingerprint_of
from anabranch.federation.catalog_reader import read_catalogs
from anabranch.pipeline.catalog_entry import known_formats
from anabranch.pipeline.times import format_time
from anabranch.pipeline.topic_names import FederationTopics, TopicNames
from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import ListedOffer, ListedStream, Listing, Lookup


def rows_of(log: EventLog, federation: str, now_ms: int, participant: str | None) -> dict[str, Any]:
    """Return the valid ``entries`` of the catalogs and the number of ``rejected`` records.

    ``participant`` limits both to one participant; None: all.

    Raises:
        Unavailable: the broker does not answer.
    """
    lookup = read_catalogs(log, FederationTopics(federation), known_formats())
    return {
        "entries": [
            _entry(lookup, listing, now_ms)
            for listing in lookup.listings()
            if participant in (None, listing.entry.participant)
        ],
        "rejected": [
            {"participant": who, "why": why, "records": count}
            for (who, why), count in sorted(lookup.rejected.items())
            if participant in (None, who)
        ],
    }


def _entry(lookup: Lookup, listing: Listing, now_ms: int) -> dict[str, Any]:
    entry, rivals = listing.entry, lookup.rivals(listing, now_ms)
    expires = format_time(listing.expires_ms)
    state = "listed" if listing.is_current(now_ms) else f"unknown since {expires}"
    return {
        "participant": entry.participant,
        "pipeline": entry.pipeline,
        "state": f"{state}; {', '.join(rivals)} lists it, too" if rivals else state,
        "is_current": listing.is_current(now_ms),
        "listed_by_others": rivals,
        "expires": expires,
        "key": entry.public.hex(),
        "streams": [_stream(entry.pipeline, each) for each in entry.streams],
        "offers": [_offer(each) for each in entry.offers],
    }


def _stream(pipeline: str, listed: ListedStream) -> dict[str, Any]:
    record, mistake = None, ""
    try:
        record = record_schema.parse(listed.record, listed.stream)
    except ConfigurationError as error:
        mistake = str(error)
    return {
        "stream": listed.stream,
        "boundaries": TopicNames(pipeline).boundaries(listed.stream),
        "fingerprint": "" if record is None else fingerprint_of(record),
        "record": None if record is None else record.avro,
        "mistake": mistake,
        "bucket_ms": listed.bucket_ms,
        "replicas": listed.replicas,
        "hops": listed.hops,
        "out_of_orderness_ms": listed.out_of_orderness_ms,
        "formats": [asdict(each) for each in listed.formats],
        "signers": list(listed.signers),
        "made_by": listed.made_by,
        "offer": listed.offer,
        "offer_version": listed.offer_version,
    }


def _offer(listed: ListedOffer) -> dict[str, Any]:
    try:
        terms = json.loads(listed.terms)
    except (ValueError, RecursionError):
        terms = None
    return {
        "offer": listed.offer,
        "version": listed.version,
        "offered_to": None if listed.is_for_all else list(listed.offered_to),
        "terms": terms,
    }
