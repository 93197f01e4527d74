"""Conversion between a pipeline file and its owner's catalog entry, and between a listed stream and
the binding that a reader keeps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from anabranch.codec import record_schema
from anabranch.codec.catalog import catalog
from anabranch.pipeline.kept_bindings import KeptBinding
from anabranch.pipeline.offers import written_terms
from anabranch.pipeline.waits import depth, out_of_orderness_ms
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import (
    CatalogEntry,
    FoundStream,
    ListedOffer,
    ListedStream,
    RecordFormat,
)

if TYPE_CHECKING:
    from anabranch.codec.record_schema import RecordSchema
    from anabranch.pipeline.model import Federation, OfferedStage, Pipeline

LEASE_MS: Final = 60_000
"""Time until a catalog entry expires, in ms. Three times the interval at which it is written anew,
so that two lost writes do not make it expire.
"""


def known_formats() -> list[RecordFormat]:
    """Return the kinds and versions of records that may be in a boundary log."""
    records = catalog().topics["boundaries"].records
    assert not isinstance(records, str), "they are ours"  # noqa: S101
    return [
        RecordFormat(name, version) for name, versions in records.items() for version in versions
    ]


def entry_of(
    pipeline: Pipeline, federation: Federation, public: bytes, at_ms: int, lease_ms: int = LEASE_MS
) -> CatalogEntry:
    """Return the catalog entry of ``pipeline``: the streams whose columns the file states, and its
    offers. ``public``: the key that signs the entry.
    """
    return CatalogEntry(
        participant=federation.participant,
        pipeline=pipeline.name,
        at_ms=at_ms,
        lease_ms=lease_ms,
        public=public,
        streams=tuple(
            _stream(pipeline, stream, record)
            for stream, record in pipeline.listed_records().items()
        ),
        offers=tuple(_offer(offer) for offer in federation.offers.values()),
    )


def _stream(pipeline: Pipeline, stream: str, record: RecordSchema) -> ListedStream:
    stage, records = pipeline.stages[stream], catalog()
    return ListedStream(
        stream=stream,
        record=_json(record.avro),
        bucket_ms=pipeline.bucket_ms,
        replicas=len(stage.replica_ids()),
        hops=1 + depth(pipeline, stream),
        out_of_orderness_ms=out_of_orderness_ms(pipeline, stream),
        formats=tuple(
            RecordFormat(name, records.newest(name).version)
            for name in dict.fromkeys(each.name for each in known_formats())
        ),
        signers=tuple(pipeline.other_signers()[stream]),
        made_by="" if stage.offered is None else stage.participant,
        offer="" if stage.offered is None else stage.offered.name,
        offer_version=0 if stage.offered is None else stage.offered.terms.version,
    )


def _offer(offer: OfferedStage) -> ListedOffer:
    return ListedOffer(
        offer=offer.name,
        version=offer.terms.version,
        terms=_json(written_terms(offer)),
        is_for_all=offer.offered_to is None,
        offered_to=tuple(offer.offered_to or ()),
    )


def binding_of(found: FoundStream) -> KeptBinding:
    """Return the binding that a reader keeps of a stream that it has looked up.

    Raises:
        ConfigurationError: a column has a type that anabranch cannot carry, or a number is above
            its limit.
    """
    entry, listed = found.entry, found.listed
    label = f"{entry.participant}.{listed.stream}"
    record = record_schema.parse(listed.record, label)
    if not (
        1 <= listed.replicas <= limits.REPLICAS_MAX
        and 1 <= listed.hops <= limits.HOPS_MAX
        and listed.out_of_orderness_ms >= 0
    ):
        raise ConfigurationError(f"{label}: its replicas, hops or out-of-orderness are not valid")
    return KeptBinding(
        participant=entry.participant,
        pipeline=entry.pipeline,
        stream=listed.stream,
        record=record.avro,
        bucket_ms=listed.bucket_ms,
        replicas=listed.replicas,
        hops=listed.hops,
        out_of_orderness_ms=listed.out_of_orderness_ms,
    )


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
