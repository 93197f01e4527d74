"""Records of a federation as bytes: Avro single objects, each with the signature of its author.

A record's schema has the fields of its statement, in their order, and the signature. A reader makes
the statement anew from the fields, and the signature is over the statement: so bytes that say the
same are as good as the first, and bytes that do not are not signed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.federation.contract_book import ContractChange
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Metered, Settled
from anabranch.protocol.federation.lookup import CatalogEntry
from anabranch.protocol.federation.movements import Ended, Placed, Started, Withdrawn
from anabranch.protocol.federation.offers import OfferAnswer, ReturnRequest, TaskOffer
from anabranch.protocol.federation.plan_switching import PlanWord
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.federation.statements import Signature, Statement
from anabranch.protocol.federation.stream_contracts import StreamContract, SuggestedContract
from anabranch.protocol.federation.stream_ledger import StreamMetered
from anabranch.protocol.federation.stream_signers import StreamSigner

FEDERATION_BYTES_MAX: Final = 256 * 1024
"""Maximum size of a contract, a ledger entry or an offer, in bytes: room for as many tasks as a
contract may name.
"""

FEDERATION_ITEMS_MAX: Final = 1_000
"""Maximum number of items of all lists in such a record, such as tasks or findings."""

CATALOG_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a participant's catalog entry for one pipeline, in bytes: room for the columns of
a hundred streams, and below the ``max.message.bytes`` of a catalog.
"""

CATALOG_ITEMS_MAX: Final = 4_096
"""Maximum number of items of all lists in a catalog entry: streams, offers, and what these name."""

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,39})\Z", re.ASCII)
"""Pattern of an amount, which is written as text since it may exceed 64 bits."""

KINDS: Final[dict[str, type[Any]]] = {
    "contract": Contract,
    "stream_contract": StreamContract,
    "suggested_contract": SuggestedContract,
    "contract_change": ContractChange,
    "plan_word": PlanWord,
    "movement_started": Started,
    "movement_withdrawn": Withdrawn,
    "movement_placed": Placed,
    "movement_ended": Ended,
    "metered": Metered,
    "stream_metered": StreamMetered,
    "audit_committed": AuditCommitted,
    "audited": Audited,
    "settled": Settled,
    "offer": TaskOffer,
    "answer": OfferAnswer,
    "return_request": ReturnRequest,
    "stream_signer": StreamSigner,
    "catalog_entry": CatalogEntry,
}
"""Types of statements, by the names of their records."""
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_KEY: Final = "published_key"
_ENTRY: Final = "catalog_entry"
_CONTRACTS: Final = frozenset(KINDS.keys() - {_ENTRY})
"""Kinds of records whose limits are ``FEDERATION_BYTES_MAX`` and ``FEDERATION_ITEMS_MAX``."""


class Signed(NamedTuple):
    """Statement of a record with its signature, which is not verified yet."""

    statement: Any
    """Statement, of one of the types in ``KINDS``."""
    signature: Signature


def encode(statement: Statement, signature: Signature) -> bytes:
    """Return the value of a record.

    Raises:
        LocalProtocolError: the record does not fit its schema or its limit: a bug here.
    """
    value = {**_plain(statement), "signed": _plain(signature)}
    name = _NAMES[type(statement)]
    bytes_max = CATALOG_BYTES_MAX if name == _ENTRY else FEDERATION_BYTES_MAX
    return single_object.write(catalog().newest(name), value, bytes_max)


def encode_key(word: PublishedKey) -> bytes:
    """Return the value of a record in a log of keys, for the statement ``word``.

    Raises:
        LocalProtocolError: ``word`` does not fit its schema: a bug here.
    """
    return single_object.write(catalog().newest(_KEY), _plain(word), FEDERATION_BYTES_MAX)


def decode(value: bytes | None) -> Signed:
    """Return the statement in ``value``.

    Raises:
        RemoteProtocolError: nothing that we know, torn, too large, or with a name that is longer
            than any of ours.
    """
    name, fields = _read(value, "a log of a contract", _CONTRACTS)
    return _signed(name, fields)


def decode_catalog(value: bytes | None) -> Signed:
    """Decode a participant's catalog entry.

    Raises:
        RemoteProtocolError: as of ``decode``.
    """
    record, fields = single_object.read(
        value, "a catalog", (_ENTRY,), CATALOG_BYTES_MAX, CATALOG_ITEMS_MAX
    )
    return _signed(record.name, fields)


def decode_key_log(value: bytes | None) -> PublishedKey | Signed:
    """Return the statement in a record of a log of keys: about a key, or a signed one about the
    participants that may sign a stream.

    Raises:
        RemoteProtocolError: as of ``decode``.
    """
    name, fields = _read(value, "a log of keys", (_KEY, _NAMES[StreamSigner]))
    if name == _KEY:
        word: PublishedKey = _built(PublishedKey, fields)
        return word
    return _signed(name, fields)


def _signed(name: str, fields: tuple[Any, ...]) -> Signed:
    return Signed(_built(KINDS[name], fields[:-1]), _built(Signature, fields[-1]))


def _read(value: bytes | None, where: str, names: Collection[str]) -> tuple[str, tuple[Any, ...]]:
    record, fields = single_object.read(
        value, where, names, FEDERATION_BYTES_MAX, FEDERATION_ITEMS_MAX
    )
    return record.name, fields


def _plain(value: Any) -> Any:
    """Return a value in the form that the Avro schema wants."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {
            field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        if isinstance(value, Settled):
            found["due_nano"] = str(value.due_nano)
        return found
    if isinstance(value, StrEnum):
        return value.value
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


@cache
def _builders(kind: Any) -> tuple[Callable[[Any], Any], ...]:
    hints = get_type_hints(kind)
    return tuple(_builder(hints[field.name]) for field in dataclasses.fields(kind))


def _built(kind: Any, fields: tuple[Any, ...]) -> Any:
    return kind(*[build(field) for build, field in zip(_builders(kind), fields, strict=True)])


def _builder(hint: Any) -> Callable[[Any], Any]:
    """Return the function that converts a decoded value to this type."""
    if get_origin(hint) is tuple:
        item = _builder(get_args(hint)[0])
        return lambda found: tuple(item(each) for each in found)
    if dataclasses.is_dataclass(hint):
        return lambda found: _built(hint, found)
    if issubclass(hint, StrEnum):
        return lambda found: _chosen(hint, found)
    return _number if hint is int else _name if hint is str else lambda found: found


def _chosen(kind: type[StrEnum], found: str) -> StrEnum:
    try:
        return kind(found)
    except ValueError:
        known = ", ".join(kind)
        raise RemoteProtocolError(f"{found[:60]!r} is none of: {known}") from None


def _number(found: int | str) -> int:
    if isinstance(found, str) and not _NUMBER.match(found):
        raise RemoteProtocolError(f"{found[:60]!r} is not an amount")
    return int(found)


def _name(found: str) -> str:
    if len(found) > limits.NAME_CHARACTERS_MAX:
        raise RemoteProtocolError(f"a text of {len(found)} characters")
    return found
