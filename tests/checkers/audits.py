"""Judge of audits: which findings of a contract's topic count, whom they blame, what they miss. It
draws samples, and reads the log, in its own few lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.protocol.federation.audit import Fault, Finding
from anabranch.protocol.federation.contracts import Contract
from anabranch.protocol.federation.ledger import AuditCommitted, Audited
from checkers.contract_topic import Book, Entry, IsSigned


@dataclass(frozen=True)
class Made:
    """Result of a bucket by some node."""

    node: str
    rows: int
    is_right: bool


@dataclass
class Term:
    """A number of an auditor: its hash stands in the log, perhaps the number, too."""

    movement: str
    digest: bytes
    width_ms: int
    committed_ms: int
    until_ms: int | None = None
    """The next hash of the movement stands in the log; None: there is none."""
    number: bytes | None = None
    revealed_ms: int | None = None
    revealed_number: int = -1
    """Number of the revealing entry, in the topic."""
    findings: tuple[Finding, ...] = ()


@dataclass
class Findings:
    """Entries that an auditor has written."""

    terms: list[Term] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    """Reports that do not count."""

    def convicting(self) -> dict[str, Term]:
        """Movements of which something was found that counts, with the term that was the first."""
        found: dict[str, Term] = {}
        for term in sorted(self.terms, key=lambda each: each.revealed_number):
            if term.findings:
                found.setdefault(term.movement, term)
        return found

    def convicted(self) -> dict[str, int]:
        """Return the convicted movements, with the number of the entry that states it."""
        return {name: term.revealed_number for name, term in self.convicting().items()}


def read(
    entries: Iterable[Entry], book: Book, text: Contract, auditor: str, is_signed: IsSigned
) -> Findings:
    """Read what ``auditor`` has written into a contract's topic, from its beginning."""
    found, now_ms = Findings(), 0
    open_terms: dict[bytes, Term] = {}
    for number, entry in enumerate(entries):
        now_ms = max(now_ms, entry.at_ms)
        statement = entry.statement
        if not isinstance(statement, AuditCommitted | Audited) or statement.by != auditor:
            continue
        if not is_signed(statement, entry.signature, auditor):
            continue
        name = statement.movement_id
        if isinstance(statement, AuditCommitted):
            if statement.digest in open_terms or name not in book.ran:
                continue
            for term in found.terms:
                if term.movement == name and term.until_ms is None:
                    term.until_ms = now_ms
            term = Term(name, statement.digest, statement.bucket_ms, now_ms)
            found.terms.append(term)
            open_terms[statement.digest] = term
            continue
        term_of = open_terms.get(
            hashlib.sha256(b"anabranch audit commitment\n" + statement.nonce).digest()
        )
        if term_of is None or term_of.movement != name:
            found.strange.append(f"a report on {name} of a number that was not committed to")
        elif term_of.number is None:
            objection = _objection(term_of, statement, book, text, now_ms)
            if objection:
                found.strange.append(f"{name}: {objection}")
                continue
            term_of.number, term_of.findings = statement.nonce, statement.findings
            term_of.revealed_ms, term_of.revealed_number = now_ms, number
    return found


def _objection(term: Term, report: Audited, book: Book, text: Contract, now_ms: int) -> str:
    ran = book.ran[term.movement]
    last_ms = min(now_ms, ran.ended_ms or now_ms)
    for finding in report.findings:
        end_ms = finding.bucket * term.width_ms
        if not max(term.committed_ms, ran.started_ms) < end_ms <= last_ms:
            return f"bucket {finding.bucket} did not end while the number counted"
        if not _is_drawn(report.nonce, term.movement, finding.bucket, text.audit.sample_ppm):
            return f"bucket {finding.bucket} is not in the sample"
    return ""


def _is_drawn(number: bytes, movement: str, bucket: int, share_ppm: int) -> bool:
    text = b"anabranch audit sample\n" + number + f"\n{movement}\n{bucket}".encode()
    drawn = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return drawn < share_ppm * 2**64 / 10**6


# ---------------------------------------------------------------- what must hold


def blames(
    terms: Iterable[Term],
    made: Mapping[str, Mapping[int, Made]],
    nodes: Mapping[str, Collection[str]],
) -> Iterator[str]:
    """Nobody is blamed for what is right, or for what others have made. ``made``: by movement and
    bucket; ``nodes``: that count for each movement.
    """
    for term in terms:
        for finding in term.findings:
            bucket = made[term.movement].get(finding.bucket)
            where = f"{term.movement}: bucket {finding.bucket}"
            if bucket is None or bucket.node not in nodes[term.movement]:
                yield f"{where} is blamed on its seller; it was made by {bucket}"
            elif bucket.is_right:
                yield f"{where} is found to be of a {finding.fault.value}, and is right"
            elif (finding.fault is Fault.NO_RESULT) != (bucket.rows == 0):
                yield f"{where} is found to be of a {finding.fault.value}, and has {bucket.rows}"


def misses(
    terms: Iterable[Term],
    book: Book,
    text: Contract,
    made: Mapping[str, Mapping[int, Made]],
    nodes: Mapping[str, Collection[str]],
) -> Iterator[str]:
    """Check that a number revealed without findings was used: every bucket of its sample that ended
    in its time, and that the seller computed, is right.
    """
    for term in terms:
        if term.number is None or term.findings:
            continue
        ran = book.ran[term.movement]
        first_ms = max(term.committed_ms, ran.started_ms)
        ends = [at_ms for at_ms in (term.until_ms, ran.ended_ms) if at_ms is not None]
        for bucket, each in sorted(made[term.movement].items()):
            if (
                first_ms < bucket * term.width_ms <= min(ends, default=0)
                and each.node in nodes[term.movement]
                and not each.is_right
                and _is_drawn(term.number, term.movement, bucket, text.audit.sample_ppm)
            ):
                yield f"{term.movement}: bucket {bucket} is wrong, and was not found: {each}"


def uncovered(terms: Sequence[Term], book: Book) -> Iterator[str]:
    """Check that a number is revealed only after the hash of the next one, or after the end."""
    for term in terms:
        ran = book.ran[term.movement]
        if term.revealed_ms is None or (
            ran.ended_ms is not None and ran.ended_ms <= term.revealed_ms
        ):
            continue
        if term.until_ms is None or term.until_ms > term.revealed_ms:
            yield f"{term.movement} has no number when one is revealed at {term.revealed_ms}"


def kept(terms: Iterable[Term], book: Book) -> Iterator[str]:
    """Check that every number of a term that is over was revealed."""
    for term in terms:
        if term.number is None and book.ran[term.movement].ended_ms is not None:
            yield f"{term.movement}: a number of {term.committed_ms} was never revealed"


def unaudited(terms: Iterable[Term], book: Book, now_ms: int, within_ms: int) -> Iterator[str]:
    """Check that a movement has a hash ``within_ms`` after it began."""
    for ran in book.ran.values():
        begun_ms = min(
            (term.committed_ms for term in terms if term.movement == ran.name), default=now_ms
        )
        if min(begun_ms, ran.ended_ms or now_ms) > ran.started_ms + within_ms:
            yield f"{ran.name} runs from {ran.started_ms} on, and is audited from {begun_ms} on"


def homecoming(findings: Findings, book: Book, quiet_from_ms: int, within_ms: int) -> Iterator[str]:
    """Check that a movement with a finding is over soon. ``quiet_from_ms``: when all faults are
    over.
    """
    for name, term in findings.convicting().items():
        assert term.revealed_ms is not None
        found_ms, ended_ms = term.revealed_ms, book.ran[name].ended_ms
        late_ms = max(found_ms, quiet_from_ms) + within_ms
        if ended_ms is None or ended_ms > late_ms:
            yield f"{name} is found to be wrong at {found_ms}, and ends at {ended_ms}"
