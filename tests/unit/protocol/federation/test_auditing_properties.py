"""Any history of a movement that is audited: whatever happens in between, and however often the
auditor's process is killed (AU1-AU4).
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.protocol.federation import auditing
from anabranch.protocol.federation.audit import Fault, Finding, commitment, is_sampled
from anabranch.protocol.federation.auditing import MovementAudit, SoldStage
from anabranch.protocol.federation.contracts import AuditClauses
from anabranch.protocol.federation.ledger import AuditCommitted, Audited, Ledger
from anabranch.protocol.federation.movements import Ended, EndReason, MovementState
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import EpochStarted
from harness.boundary_logs import record
from harness.markets import answer, contract, started, verify

NAME = "north-south:1/north.a"
WIDTH_MS = 100
SAMPLE_PPM = 600_000
TERM_MS = 1_500
STAGE = SoldStage("0", frozenset({"south.0"}), horizon=2, version=1, width_ms=WIDTH_MS)
BEGUN = 50
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("time"), st.integers(1, 900)),
        st.tuples(st.just("close"), st.integers(1, 9)),
        st.tuples(st.just("judge"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["write", "kill", "end"]), st.just(0)),
    ),
    max_size=60,
)


class History:
    """The ledger, the stage's log, an auditor and what it keeps."""

    def __init__(self) -> None:
        text = contract(audit=AuditClauses(1_000, 50_000, SAMPLE_PPM, 60_000))
        self.ledger = Ledger(text, verify, "audit")
        self.now_ms = BEGUN * WIDTH_MS
        assert self.ledger.add(started(answer()), self.now_ms) == ""
        self.log_state = LogState(["0"])
        self.log_state.apply(0, EpochStarted("0", "f", "t", node="north.0"))
        self.log_state.apply(1, record(0, 0, BEGUN))
        self.log_state.apply(2, EpochStarted("0", "f", "u", node="south.0"))
        self.upto = BEGUN
        self.batch = self.drawn = 0
        self.kept: tuple[bytes, ...] = ()
        self.audit = MovementAudit("audit", "north-south", NAME)
        self.judged: set[int] = set()
        self.wrong: set[int] = set()
        self.written: list[AuditCommitted | Audited] = []
        self.begun_ms: dict[bytes, int] = {}

    @property
    def is_over(self) -> bool:
        return self.ledger.movements[NAME].state is MovementState.OVER

    def look(self) -> None:
        movement = self.ledger.movements[NAME]
        self.audit.read(self.ledger, movement)
        if self.audit.is_number_due(movement, self.now_ms):
            self.drawn += 1
            self.audit.drawn(self.drawn.to_bytes(32, "big"))
        self.kept = self.audit.numbers
        self.audit.look(self.ledger, movement, self.log_state, STAGE, self.now_ms)

    def close(self, count: int) -> None:
        self.upto, self.batch = self.upto + count, self.batch + 1
        assert self.log_state.apply(3, record(2, self.batch, self.upto)).accepted

    def judge(self, wrong: int) -> None:
        wanted = self.audit.wanted(STAGE.horizon)
        found = [Finding(bucket, Fault.WRONG_RESULT) for bucket in wanted[:wrong]]
        self.wrong |= {finding.bucket for finding in found}
        self.judged |= set(wanted)
        self.audit.judged(wanted, found)

    def write(self) -> None:
        for entry in self.audit.entries(self.ledger.movements[NAME], WIDTH_MS):
            if isinstance(entry, Audited):
                self.check_report(entry)
            assert self.ledger.add(entry, self.now_ms) == "", "it counts"
            self.written.append(entry)
            if isinstance(entry, AuditCommitted):
                self.begun_ms[entry.digest] = self.now_ms

    def check_report(self, entry: Audited) -> None:
        hashes = list(self.begun_ms)
        index = hashes.index(commitment(entry.nonce))
        assert self.is_over or index + 1 < len(hashes), "AU1"
        assert {finding.bucket for finding in entry.findings} <= self.wrong
        if entry.findings:
            return
        movement = self.ledger.movements[NAME]
        until_ms = (
            self.begun_ms[hashes[index + 1]] if index + 1 < len(hashes) else movement.ended_ms
        )
        first = self.begun_ms[hashes[index]] // WIDTH_MS + 1
        sampled = {
            bucket
            for bucket in range(first, until_ms // WIDTH_MS + 1)
            if is_sampled(entry.nonce, NAME, bucket, SAMPLE_PPM)
        }
        assert sampled <= self.judged, "AU2"

    def step(self, what: str, count: int) -> None:
        if what == "time":
            self.now_ms += count
        elif what == "close":
            self.close(count)
        elif what == "judge":
            self.judge(count)
        elif what == "write":
            self.write()
        elif what == "kill":
            self.audit = MovementAudit("audit", "north-south", NAME, self.kept)
        elif what == "end" and not self.is_over:
            entry = Ended("north-south", NAME, "north", 0, EndReason.RECALLED)
            assert self.ledger.add(entry, self.now_ms) == ""
        self.look()


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_any_history(steps: list[tuple[str, int]]) -> None:
    before, auditing.TERM_MS = auditing.TERM_MS, TERM_MS  # type: ignore[misc]
    try:
        made = History()
        made.look()
        for what, count in steps:
            made.step(what, count)
        for what, count in (("end", 0), ("time", 100), ("close", 1)):
            made.step(what, count)
        while made.upto * WIDTH_MS < made.now_ms:
            made.step("close", 9)
        while made.audit.wanted(STAGE.horizon):
            made.step("judge", 0)
        made.step("write", 0)
        made.step("time", 1)
        assert made.kept == (), "every number is told, or dropped"
    finally:
        auditing.TERM_MS = before  # type: ignore[misc]
