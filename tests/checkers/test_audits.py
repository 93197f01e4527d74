"""The judge of audits sees what it is for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import pytest

from anabranch.protocol.federation.audit import Fault, Finding, is_sampled
from anabranch.protocol.federation.ledger import AuditCommitted, Audited
from anabranch.protocol.federation.movements import EndReason
from checkers import audits, contract_topic
from checkers.audits import Findings, Made
from checkers.contract_topic import Book, Entry
from checkers.test_contract_topic import NAME, TEXT, end, is_signed, record, start

NUMBER: Final = bytes(range(32))
OTHER: Final = bytes(32)
WIDTH_MS: Final = 100
SHARE_PPM: Final = TEXT.audit.sample_ppm
BEGUN_MS: Final = 1_500
DRAWN: Final = [
    bucket for bucket in range(21, 20_000) if is_sampled(NUMBER, NAME, bucket, SHARE_PPM)
]
"""Buckets of the sample that end after the number was fixed, at 2 000 ms."""
LAST_MS: Final = DRAWN[1] * WIDTH_MS
SOUTH: Final = "south.0"
NODES: Final = {NAME: SOUTH}


def committed(at_ms: int = 2_000, number: bytes = NUMBER) -> Entry:
    digest = hashlib.sha256(b"anabranch audit commitment\n" + number).digest()
    return record(at_ms, AuditCommitted("north-south", NAME, "broker", digest, WIDTH_MS))


def audited(at_ms: int, *findings: Finding, number: bytes = NUMBER) -> Entry:
    return record(at_ms, Audited("north-south", NAME, "broker", number, findings))


def wrong(bucket: int = DRAWN[0]) -> Finding:
    return Finding(bucket, Fault.WRONG_RESULT)


def read(*entries: Entry) -> tuple[Findings, Book]:
    every = [start(BEGUN_MS), *entries]
    book = contract_topic.read(every, TEXT, is_signed)
    return audits.read(every, book, TEXT, "broker", is_signed), book


def made(*wrong_buckets: int, node: str = SOUTH, rows: int = 2) -> dict[str, dict[int, Made]]:
    return {
        NAME: {
            bucket: Made(node, rows, bucket not in wrong_buckets)
            for bucket in range(16, DRAWN[2] + 1)
        }
    }


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def test_a_report_counts_with_a_number_that_was_fixed_before() -> None:
    found, _ = read(committed(), audited(LAST_MS, wrong()))
    assert found.convicted() == {NAME: 2}
    assert found.strange == []


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((audited(LAST_MS, wrong()),), "not committed to"),
        ((committed(), audited(LAST_MS, wrong(), number=OTHER)), "not committed to"),
        ((committed(), audited(LAST_MS, wrong(DRAWN[0] + 1))), "not in the sample"),
        ((committed(LAST_MS), audited(LAST_MS, wrong())), "did not end while"),
        ((committed(), end(2_050), audited(LAST_MS, wrong())), "did not end while"),
    ],
)
def test_a_report_of_what_was_picked_does_not_count(entries: tuple[Entry, ...], why: str) -> None:
    assert not is_sampled(NUMBER, NAME, DRAWN[0] + 1, SHARE_PPM)
    found, _ = read(*entries)
    assert found.convicted() == {}
    assert why in text_of(found.strange)


def test_what_somebody_else_writes_or_writes_again_changes_nothing() -> None:
    forged = record(1_900, AuditCommitted("north-south", NAME, "broker", bytes(32), 1), "mallory")
    found, _ = read(forged, committed(), committed(), audited(LAST_MS), audited(LAST_MS, wrong()))
    assert len(found.terms) == 1
    assert found.convicted() == {}
    assert found.strange == []


def test_who_is_blamed_has_made_what_is_wrong() -> None:
    found, _ = read(committed(), audited(LAST_MS, wrong()))
    assert not text_of(audits.blames(found.terms, made(DRAWN[0]), NODES))
    assert "is right" in text_of(audits.blames(found.terms, made(), NODES))
    others = made(DRAWN[0], node="north.0")
    assert "made by" in text_of(audits.blames(found.terms, others, NODES))
    assert "made by" in text_of(audits.blames(found.terms, {NAME: {}}, NODES))
    nothing = made(DRAWN[0], rows=0)
    assert "has 0" in text_of(audits.blames(found.terms, nothing, NODES))


def test_a_sample_without_findings_has_no_wrong_bucket() -> None:
    found, book = read(committed(), end(LAST_MS), audited(LAST_MS + 9))

    def missed(*buckets: int, node: str = SOUTH) -> str:
        return text_of(audits.misses(found.terms, book, TEXT, made(*buckets, node=node), NODES))

    assert f"bucket {DRAWN[0]} is wrong" in missed(DRAWN[0])
    assert not missed(DRAWN[0] + 1), "it was not drawn"
    assert not missed(DRAWN[2]), "it ended after the movement"
    assert not missed(DRAWN[0], node="north.0")
    blamed, book = read(committed(), audited(LAST_MS, wrong(DRAWN[1])), end(LAST_MS))
    assert not text_of(audits.misses(blamed.terms, book, TEXT, made(DRAWN[0]), NODES))


def test_a_number_is_told_after_the_next_hash_or_the_end() -> None:
    found, book = read(committed(), audited(LAST_MS))
    assert "has no number" in text_of(audits.uncovered(found.terms, book))
    for between in (committed(LAST_MS - 1, OTHER), end(LAST_MS - 1)):
        found, book = read(committed(), between, audited(LAST_MS))
        assert not text_of(audits.uncovered(found.terms, book))


def test_every_number_is_told_when_the_movement_is_over() -> None:
    found, book = read(committed(), end(LAST_MS))
    assert "was never revealed" in text_of(audits.kept(found.terms, book))
    found, book = read(committed())
    assert not text_of(audits.kept(found.terms, book))


def test_a_movement_is_audited_soon() -> None:
    found, book = read(committed(2_501))
    assert "is audited from" in text_of(audits.unaudited(found.terms, book, 9_000, 1_000))
    assert not text_of(audits.unaudited(found.terms, book, 9_000, 1_001))
    found, book = read(end(2_000))
    assert not text_of(audits.unaudited(found.terms, book, 9_000, 500)), "it was over by then"
    assert text_of(audits.unaudited(found.terms, book, 9_000, 499))


def test_what_was_found_is_over_soon() -> None:
    found, book = read(
        committed(), audited(LAST_MS, wrong()), end(LAST_MS + 500, why=EndReason.WRONG)
    )
    assert not text_of(audits.homecoming(found, book, 0, 500))
    assert "ends at" in text_of(audits.homecoming(found, book, 0, 499))
    assert not text_of(audits.homecoming(found, book, LAST_MS + 400, 100))
    found, book = read(committed(), audited(LAST_MS, wrong()))
    assert "ends at None" in text_of(audits.homecoming(found, book, 0, 500))
