"""Tests of the participants' statements as bytes."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec import federation_records
from anabranch.codec.catalog import catalog
from anabranch.codec.federation_records import CATALOG_BYTES_MAX, FEDERATION_BYTES_MAX
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.federation.audit import Fault, Finding
from anabranch.protocol.federation.contract_book import Change, ContractChange
from anabranch.protocol.federation.contracts import TASKS_MAX, Contract
from anabranch.protocol.federation.ledger import (
    FINDINGS_MAX,
    AuditCommitted,
    Audited,
    Metered,
    Settled,
)
from anabranch.protocol.federation.lookup import CatalogEntry
from anabranch.protocol.federation.movements import Ended, EndReason, Placed, Started, Withdrawn
from anabranch.protocol.federation.offers import (
    OFFERED_TASKS_MAX,
    AcceptedTask,
    OfferAnswer,
    OfferedTask,
    ReturnRequest,
    TaskOffer,
)
from anabranch.protocol.federation.plan_switching import PlanWord
from anabranch.protocol.federation.published_keys import PublishedKey
from anabranch.protocol.federation.statements import Signature, signed_bytes
from anabranch.protocol.federation.stream_contracts import (
    PLANS_MAX,
    STAGES_MAX,
    TIERS_MAX,
    StreamContract,
    StreamTerms,
    SuggestedContract,
    Tier,
)
from anabranch.protocol.federation.stream_ledger import StreamMetered
from anabranch.protocol.federation.stream_signers import StreamSigner
from harness import catalogs
from harness.contents import SUGGESTED, content
from harness.markets import CONTRACT, answer, contract, offer, signature, started
from harness.plans import plans

LONG = st.integers(-(2**63), 2**63 - 1)
NAME = st.text(st.characters(codec="utf-8"), max_size=limits.NAME_CHARACTERS_MAX)
SIGNATURES = st.builds(Signature, NAME, NAME, st.binary(min_size=64, max_size=64))
st.register_type_strategy(int, LONG)
st.register_type_strategy(str, NAME)
st.register_type_strategy(Signature, SIGNATURES)
KINDS = (
    Contract,
    StreamContract,
    SuggestedContract,
    StreamMetered,
    StreamContract,
    PlanWord,
    ContractChange,
    Started,
    Withdrawn,
    Placed,
    Ended,
    Metered,
    AuditCommitted,
    Audited,
    TaskOffer,
    OfferAnswer,
    ReturnRequest,
    StreamSigner,
)
LARGE = st.builds(Settled, NAME, NAME, LONG, st.integers(-(10**40) + 1, 10**40 - 1))


@given(st.one_of(LARGE, *(st.from_type(kind) for kind in KINDS)), SIGNATURES)
def test_a_statement_comes_back_as_it_was(statement: Any, signed: Signature) -> None:
    """To the byte that is signed."""
    found = federation_records.decode(federation_records.encode(statement, signed))
    assert found == (statement, signed)
    assert signed_bytes(found.statement) == signed_bytes(statement)


@given(st.from_type(PublishedKey))
def test_a_key_comes_back_as_it_was(word: PublishedKey) -> None:
    assert federation_records.decode_key_log(federation_records.encode_key(word)) == word


@given(st.from_type(StreamSigner), SIGNATURES)
def test_who_may_sign_a_stream_stands_among_the_keys(word: StreamSigner, signed: Signature) -> None:
    value = federation_records.encode(word, signed)
    assert federation_records.decode_key_log(value) == (word, signed)


@given(st.from_type(CatalogEntry), SIGNATURES)
def test_what_stands_in_a_catalog_comes_back_as_it_was(
    entry: CatalogEntry, signed: Signature
) -> None:
    value = federation_records.encode(entry, signed)
    assert federation_records.decode_catalog(value) == (entry, signed)


@pytest.mark.parametrize("kind", [*KINDS, Settled, CatalogEntry])
def test_the_schema_has_the_fields_of_the_statement_in_their_order(kind: type[Any]) -> None:
    names = [field["name"] for field in _avro(kind)["fields"]]
    assert names == [*(field.name for field in dataclasses.fields(kind)), "signed"]


def _avro(kind: type[Any]) -> dict[str, Any]:
    found = {name: each for name, each in federation_records.KINDS.items() if each is kind}
    return catalog().newest(next(iter(found))).avro


def test_the_largest_of_each_kind_fits() -> None:
    tasks = tuple(f"{'n' * 63}.{number:063}" for number in range(TASKS_MAX))
    name = f"{'n' * 63}:{2**62}/{tasks[0]}"
    offered = tuple(OfferedTask(task, 10**9, 10**12) for task in tasks[:OFFERED_TASKS_MAX])
    taken = tuple(AcceptedTask(task, 10**9, 10**12) for task in tasks[:OFFERED_TASKS_MAX])
    findings = tuple(Finding(2**62, Fault.WRONG_RESULT) for _ in range(FINDINGS_MAX))
    terms = content(
        tiers=tuple(Tier(999_999 - number, 10**12) for number in range(TIERS_MAX)),
    )
    stages = tuple(f"{number:02}{'s' * 61}" for number in range(STAGES_MAX))
    plan = StreamTerms(
        stages, name[:63], stages[0], terms.plans[0].payment, terms.plans[0].tiers, 2**53, 10**9
    )
    for statement in (
        contract(tasks=tasks),
        terms,
        plans(plans=(plan,) * PLANS_MAX),
        replace(SUGGESTED, terms=terms),
        offer(1, *offered),
        started(answer(1, *taken)),
        Audited("c", name, "n", bytes(32), findings),
    ):
        value = federation_records.encode(statement, signature(statement, "north"))
        assert len(value) < FEDERATION_BYTES_MAX
        assert federation_records.decode(value).statement == statement


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (Ended("c", "m", "n" * 250, 0, EndReason.SILENT), "250 characters"),
        (contract(tasks=("t" * 250,)), "250 characters"),
    ],
)
def test_a_name_longer_than_any_of_ours_is_rejected(statement: Any, text: str) -> None:
    value = federation_records.encode(statement, signature(statement, "north"))
    with pytest.raises(RemoteProtocolError, match=text):
        federation_records.decode(value)


def test_what_is_too_large_is_rejected_before_it_is_read() -> None:
    with pytest.raises(RemoteProtocolError, match="more than"):
        federation_records.decode(bytes(FEDERATION_BYTES_MAX + 1))
    large = contract(tasks=tuple("t" * 249 for _ in range(2_000)))
    with pytest.raises(LocalProtocolError, match="more than"):
        federation_records.encode(large, signature(CONTRACT, "north"))
    many = Audited("c", "m", "n", b"", (Finding(1, Fault.NO_RESULT),) * (FINDINGS_MAX + 1))
    value = federation_records.encode(many, signature(CONTRACT, "north"))
    with pytest.raises(RemoteProtocolError, match="more items"):
        federation_records.decode(value)


def test_what_is_too_large_for_a_catalog_is_rejected_before_it_is_read() -> None:
    with pytest.raises(RemoteProtocolError, match="more than"):
        federation_records.decode_catalog(bytes(CATALOG_BYTES_MAX + 1))
    wide = replace(catalogs.SPEEDS, record=bytes(limits.SCHEMA_BYTES_MAX))
    large = catalogs.entry(streams=(wide,) * 8)
    with pytest.raises(LocalProtocolError, match="more than"):
        federation_records.encode(large, catalogs.signature(large))
    largest = catalogs.entry(streams=(wide,) * 7)
    value = federation_records.encode(largest, catalogs.signature(largest))
    assert federation_records.decode_catalog(value).statement == largest
    many = catalogs.entry(streams=(replace(catalogs.SPEEDS, signers=("a",) * 5_000),))
    value = federation_records.encode(many, catalogs.signature(many))
    with pytest.raises(RemoteProtocolError, match="more items"):
        federation_records.decode_catalog(value)


def test_a_signature_of_another_length_is_not_written() -> None:
    with pytest.raises(LocalProtocolError):
        federation_records.encode(CONTRACT, Signature("north", "1", b"short"))


@pytest.mark.parametrize("why", ["", "recalled ", "silenced", "x" * 249])
def test_a_word_that_does_not_exist_is_rejected(why: str) -> None:
    ended = Ended("c", "m", "n", 0, cast("EndReason", why))
    value = federation_records.encode(ended, signature(CONTRACT, "north"))
    with pytest.raises(RemoteProtocolError, match="is none of: recalled, returned, silent"):
        federation_records.decode(value)


@pytest.mark.parametrize("due", ["", "1.5", "+1", " 1", "01", "1_0", "-", "9" * 41, "\u0661"])
def test_an_amount_is_written_in_one_way(due: str) -> None:
    settled = Settled("c", "n", 1, cast("int", due))
    value = federation_records.encode(settled, signature(CONTRACT, "north"))
    with pytest.raises(RemoteProtocolError, match="is not an amount"):
        federation_records.decode(value)


def test_a_record_of_another_log_is_rejected() -> None:
    key = federation_records.encode_key(PublishedKey("north", "1", bytes(32)))
    word = ContractChange("c", 1, "n", Change.NOTICE, 1, 0)
    changed = federation_records.encode(word, replace(signature(word, "n"), key_id="2"))
    with pytest.raises(RemoteProtocolError, match="published_key in a log of a contract"):
        federation_records.decode(key)
    with pytest.raises(RemoteProtocolError, match="contract_change in a log of keys"):
        federation_records.decode_key_log(changed)
    with pytest.raises(RemoteProtocolError, match="contract_change in a catalog"):
        federation_records.decode_catalog(changed)
    entry = catalogs.entry()
    listed = federation_records.encode(entry, catalogs.signature(entry))
    with pytest.raises(RemoteProtocolError, match="catalog_entry in a log of a contract"):
        federation_records.decode(listed)


@pytest.mark.parametrize("value", [None, b"", b"x"])
def test_anything_else_is_rejected(value: bytes | None) -> None:
    for read in (
        federation_records.decode,
        federation_records.decode_key_log,
        federation_records.decode_catalog,
    ):
        with pytest.raises(RemoteProtocolError):
            read(value)
