"""The auditor on a log in memory, under a clock that the test moves, its engine a few lines."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.disk.audit_nonces import NonceFile
from anabranch.adapters.key_files import VARIABLE, write_key
from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.auditor.service import AuditorService, build
from anabranch.auditor.sold_stage import RECHECK_MS_MAX, SoldStageLogs
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    StageFunctionError,
    Unavailable,
)
from anabranch.protocol.federation import auditing
from anabranch.protocol.federation.audit import Fault, Finding, commitment
from anabranch.protocol.federation.ledger import AuditCommitted, Audited
from anabranch.protocol.federation.movements import EndReason
from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS
from harness import outputs
from harness.audited_stage import STAGE, AuditedStage, FewLines
from harness.emptied_logs import emptied

ROUND_MS = 100


def doubled(table: pa.Table) -> pa.Table:
    """Double a total, as a wrong result."""
    index = table.schema.get_field_index("total")
    return table.set_column(index, "total", pa.array([1] * table.num_rows, pa.int64()))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def world(clock: VirtualClock, tmp_path: Path) -> Iterator[AuditedStage]:
    made = AuditedStage(LocalEventLog(clock), clock, tmp_path)
    made.sell()
    yield made
    made.close()


@contextmanager
def running(world: AuditedStage, seed: int = 1) -> Iterator[AuditorService]:
    auditor = world.auditor(seed)
    try:
        yield auditor
    finally:
        auditor.stop()


def rounds(world: AuditedStage, auditor: AuditorService, count: int = 30) -> None:
    for _ in range(count):
        world.round()
        auditor.step()
        world.clock.sleep_ms(ROUND_MS)


def left_out(auditor: AuditorService) -> dict[str, int]:
    found = auditor.status.detail["left_out"]
    assert isinstance(found, dict)
    return dict(found.get(STAGE, {}))


def judged(auditor: AuditorService, outcome: str) -> float:
    found = auditor._context.registry.get_sample_value(
        "anabranch_audited_buckets_total",
        {"pipeline": "north", "stage": STAGE, "outcome": outcome},
    )
    return found or 0.0


def waits(auditor: AuditorService) -> str | None:
    return auditor.status.waiting_for


def test_a_seller_that_makes_what_is_right_is_not_blamed(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor)
        assert judged(auditor, "right") > 20
        assert world.audit_reports() == []
        world.end()
        rounds(world, auditor)
    (committed, report) = world.auditor_entries()
    assert isinstance(committed, AuditCommitted)
    assert isinstance(report, Audited)
    assert committed.digest == commitment(report.nonce)
    assert report.findings == ()
    assert not world.ledger().is_wrong(world.movement_id)
    assert (auditor.status.detail["movements"], left_out(auditor)) == ([], {})
    assert world.contract().ignored == {}


def test_a_wrong_bucket_is_found_and_the_seller_pays(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 5)
        world.spoil = lambda bucket, table: table if world.spoilt else doubled(table)
        rounds(world, auditor)
        assert judged(auditor, "wrong") == 1
    reports = world.audit_reports()
    assert [each.findings for each in reports] == [(Finding(world.spoilt[0], Fault.WRONG_RESULT),)]
    ledger = world.ledger()
    assert ledger.is_wrong(world.movement_id)
    world.end(EndReason.WRONG)
    ledger = world.ledger()
    assert [(each.payer, each.reason) for each in ledger.postings] == [
        ("south", f"wrong results: {world.movement_id}")
    ]
    kinds = [type(each) for each in world.auditor_entries()]
    assert kinds == [AuditCommitted, AuditCommitted, Audited], "nobody sees a time without one"


def test_a_bucket_without_its_result_is_found(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 5)
        world.spoil = lambda bucket, table: table if world.spoilt else table.slice(0, 0)
        rounds(world, auditor)
    assert [each.findings for each in world.audit_reports()] == [
        (Finding(world.spoilt[0], Fault.NO_RESULT),)
    ]


def test_a_query_begins_the_horizon_before_what_is_wanted(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor)
        assert world.engine is not None
        committed_ms = next(
            found.at_ms
            for entry in world.auditor_entries()
            if (found := world.ledger().commitment(world.movement_id, entry.digest))  # type: ignore[union-attr]
        )
        assert world.engine.begun[0] == committed_ms // 100 + 1 - 2
    assert world.engine.is_closed


def test_a_term_ends_and_its_number_is_revealed(
    world: AuditedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "TERM_MS", 1_600)
    with running(world) as auditor:
        rounds(world, auditor)
    first, *others = [type(each) for each in world.auditor_entries()]
    assert first is AuditCommitted
    assert others[:4] == [AuditCommitted, Audited] * 2, "the next hash, then the number"
    assert all(report.findings == () for report in world.audit_reports())


def test_numbers_are_kept_for_their_owner_alone_and_a_new_process_goes_on(
    world: AuditedStage,
) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 3)
    assert stat.S_IMODE(world.numbers_file.stat().st_mode) == 0o600
    (committed,) = world.auditor_entries()
    world.spoil = lambda bucket, table: table if world.spoilt else doubled(table)
    with running(world, seed=2) as auditor:
        rounds(world, auditor)
        (report,) = world.audit_reports()
        assert isinstance(committed, AuditCommitted)
        assert commitment(report.nonce) == committed.digest
        assert report.findings
        assert report.nonce.hex() not in world.numbers_file.read_text()
    assert "{" in world.numbers_file.read_text(), "the next one is kept"


def test_a_lost_number_has_no_findings_and_another_is_drawn(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 3)
    world.numbers_file.unlink()
    with running(world, seed=2) as auditor:
        rounds(world, auditor)
        world.end()
        rounds(world, auditor)
    lost, second, report = world.auditor_entries()
    assert isinstance(lost, AuditCommitted)
    assert isinstance(second, AuditCommitted)
    assert isinstance(report, Audited)
    assert second.digest == commitment(report.nonce) != lost.digest


def test_an_auditor_whose_hashes_do_not_count_keeps_no_buckets_for_them(
    world: AuditedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is not published, or was revoked."""
    with running(world) as auditor:
        monkeypatch.setattr(auditor._ledgers, "write", lambda _: False)
        for _ in range(40):
            rounds(world, auditor, 1)
            world.clock.sleep_ms(3_000)
        log_state = auditor._logs.every[STAGE].log_state
        assert log_state.forgotten > log_state.upto - 120_000 // world.pipeline.bucket_ms


def test_what_is_deleted_is_reported_and_not_guessed(
    world: AuditedStage, clock: VirtualClock
) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 3)
    world.spoil = lambda bucket, table: doubled(table)
    for _ in range(10):
        clock.sleep_ms(ROUND_MS)
        world.round()
    world.delete_blocks()
    world.spoil = lambda bucket, table: table
    with running(world, seed=2) as auditor:
        rounds(world, auditor, 60)
        assert left_out(auditor)["its input is gone"] >= 10
        assert judged(auditor, "wrong") == 0
        assert judged(auditor, "right") > 20, "it goes on where the input is there again"
        assert world.engine is not None
        assert world.engine.queries == len(world.engine.begun), "none is run in vain"
    assert world.audit_reports() == []


def test_nobody_is_blamed_where_the_horizon_is_too_short(world: AuditedStage) -> None:
    with running(world) as auditor:
        rounds(world, auditor, 1)
        world.engine = FewLines(auditor._context)
        world.engine.spoil = lambda query, made: {
            bucket: doubled(table) if query % 2 == 0 else table for bucket, table in made.items()
        }
        rounds(world, auditor)
        assert left_out(auditor)["two computations of it differ"] > 5
        assert judged(auditor, "wrong") == 0
    assert world.audit_reports() == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (StageFunctionError("f: raised"), "its function failed"),
        (DataMissing("blocks"), "its input is gone"),
    ],
)
def test_what_cannot_be_computed_is_left_out(
    world: AuditedStage, error: Exception, why: str
) -> None:
    with running(world) as auditor:
        world.engine = FewLines(auditor._context, dies_of=error)
        rounds(world, auditor)
        assert left_out(auditor)[why] > 5
        world.engine.dies_of = None
        rounds(world, auditor)
        assert judged(auditor, "right") > 5
    assert world.audit_reports() == []


def test_a_query_that_does_not_end_is_given_up(
    world: AuditedStage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FewLines, "_run", lambda *_: None)
    with running(world) as auditor:
        rounds(world, auditor, 5)
        assert left_out(auditor)["it took too long"] > 0
        begun_ms = clock.monotonic_ms()
        auditor._context.stopping.set()
        auditor.step()
        assert clock.monotonic_ms() - begun_ms < RECHECK_MS_MAX


def test_a_broker_that_does_not_answer_is_waited_for(
    world: AuditedStage,
) -> None:
    waited = []
    with running(world) as auditor:
        world.engine = FewLines(auditor._context)
        for error in (Unavailable("no answer"), None):
            world.engine.dies_of = error
            rounds(world, auditor, 15)
            waited.append(auditor.status.waiting_for)
        assert waited == ["no answer", None]
        assert left_out(auditor) == {}


LOST = "its first records are deleted"


def lost(*_: object) -> None:
    """Fail as a log whose first records are deleted."""
    raise DataMissing(LOST)


def test_logs_that_lost_records_are_opened_anew(
    world: AuditedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The auditor goes on; where they cannot be opened either, it waits for an operator."""
    with running(world) as auditor:
        rounds(world, auditor, 10)
        before = judged(auditor, "right")
        with monkeypatch.context() as patched:
            patched.setattr(SoldStageLogs, "poll", lost)
            rounds(world, auditor, 1)
        assert waits(auditor) == f"{STAGE}: {LOST}"
        with monkeypatch.context() as patched:
            patched.setattr(SoldStageLogs, "_open_log", lost)
            rounds(world, auditor, 60)
        assert waits(auditor) == f"{STAGE}: {LOST}"
        assert judged(auditor, "right") == before
        rounds(world, auditor, OPEN_AGAIN_MS // ROUND_MS)
        assert waits(auditor) is None
        assert judged(auditor, "right") > before
        assert judged(auditor, "wrong") == 0
        world.end()
        rounds(world, auditor)
        assert waits(auditor) is None
    assert [each.findings for each in world.audit_reports()] == [()]


def test_an_emptied_log_is_no_ground_to_judge_and_is_read_when_it_is_restored(
    world: AuditedStage,
) -> None:
    """The seller may write the stage's stream, and is not the reason why its first records lack."""
    with running(world) as before:
        rounds(world, before, 10)
    with running(world, 2) as auditor:
        assert isinstance(world.log, LocalEventLog)
        with emptied(world.log, world.pipeline.topic_names.boundaries(STAGE)):
            rounds(world, auditor, 5)
            assert LOST in str(waits(auditor))
        rounds(world, auditor, OPEN_AGAIN_MS // ROUND_MS + 5)
        assert waits(auditor) is None
        assert judged(auditor, "right") > 0
        assert judged(auditor, "wrong") == 0


def test_nothing_is_waited_for_where_the_stage_is_not_sold_any_more(
    world: AuditedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(world) as auditor:
        monkeypatch.setattr(SoldStageLogs, "_open_log", lost)
        rounds(world, auditor, 3)
        assert waits(auditor) == f"{STAGE}: {LOST}"
        world.end()
        rounds(world, auditor, 3)
        assert waits(auditor) is None


def test_a_stage_whose_state_cannot_be_made_again_is_not_audited(
    clock: VirtualClock, tmp_path: Path
) -> None:
    world = AuditedStage(LocalEventLog(clock), clock, tmp_path)
    stage = world.pipeline.stages[STAGE].model_copy(update={"ha": "active"})
    stages = {**world.pipeline.stages, STAGE: stage}
    world.pipeline = world.pipeline.model_copy(update={"stages": stages})
    world.sell()
    with running(world) as auditor:
        rounds(world, auditor, 5)
        reasons = auditor.status.detail["not_audited"]
        assert isinstance(reasons, dict)
        assert "with ha: active" in reasons[STAGE]
    assert world.auditor_entries() == []
    assert world.engine is None
    world.close()


def test_what_it_needs(world: AuditedStage, monkeypatch: pytest.MonkeyPatch) -> None:
    context = outputs.context(
        world.log, world.pipeline, world.clock, SeededEntropy(1), "auditor", "auditor"
    )
    monkeypatch.delenv(f"{VARIABLE}_FILE", raising=False)
    with pytest.raises(ConfigurationError, match="name the key of auditor"):
        build(context.settings, context, world.start_engine, NonceFile)
    write_key(world.book.keys["south"], world.folder / "south.key")
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(world.folder / "south.key"))
    with pytest.raises(ConfigurationError, match="is a key of south"):
        build(context.settings, context, world.start_engine, NonceFile)
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(world.folder / "auditor.key"))
    assert (
        build(context.settings, context, world.start_engine, NonceFile).status.state == "starting"
    )
    federation = world.pipeline.federation
    assert federation is not None
    alone = world.pipeline.model_copy(
        update={"federation": federation.model_copy(update={"auditor": ""})}
    )
    context = outputs.context(world.log, alone, world.clock, SeededEntropy(1), "auditor", "x")
    with pytest.raises(ConfigurationError, match="there is no auditor"):
        build(context.settings, context, world.start_engine, NonceFile)
