"""The auditor on a real broker: sellers that make what is right, what is wrong, and nothing; and as
a process that is killed at each of its crash points. Where something is computed, the engine is one
of a few lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE
from anabranch.adapters.system.clock import SystemClock
from anabranch.protocol.federation.audit import Fault, commitment
from anabranch.protocol.federation.ledger import AuditCommitted, Posting
from anabranch.protocol.federation.movements import EndReason
from harness.audited_stage import AuditedStage
from harness.service_processes import ModuleProcess, service
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60


@pytest.fixture
def world(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[AuditedStage]:
    made = AuditedStage(
        KafkaEventLog(kafka),
        SystemClock(),
        tmp_path,
        federation=topic_prefix,
        prefix=topic_prefix,
    )
    yield made
    made.close()


def wrong_total(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("total")
    return table.set_column(index, "total", pa.array([1] * table.num_rows, pa.int64()))


def nothing(table: pa.Table) -> pa.Table:
    return table.slice(0, 0)


def postings(world: AuditedStage) -> list[Posting]:
    return world.ledger().postings


@pytest.mark.parametrize(
    ("spoil", "fault"), [(wrong_total, Fault.WRONG_RESULT), (nothing, Fault.NO_RESULT)]
)
def test_what_a_seller_makes_wrong_or_not_at_all_is_found_and_costs_the_violation(
    world: AuditedStage, spoil: object, fault: Fault
) -> None:
    assert callable(spoil)
    world.sell()
    auditor = world.auditor()

    def found() -> bool:
        world.round()
        auditor.step()
        return bool(world.audit_reports())

    try:
        wait_until(lambda: found() or bool(world.engine and world.engine.begun), DEADLINE_S, "")
        assert world.audit_reports() == [], "what was right so far"
        world.spoil = lambda _, table: table if world.spoilt else spoil(table)
        wait_until(found, DEADLINE_S, f"a finding; {auditor.status.detail}")
    finally:
        auditor.stop()
    (report,) = world.audit_reports()
    assert [(each.bucket, each.fault) for each in report.findings] == [(world.spoilt[0], fault)]
    world.end(EndReason.WRONG)
    assert [(each.payer, each.payee, each.reason) for each in postings(world)] == [
        ("south", "north", f"wrong results: {world.movement_id}")
    ]


def test_an_honest_seller_pays_nothing(world: AuditedStage) -> None:
    world.sell()
    auditor = world.auditor()

    def look() -> None:
        world.round()
        auditor.step()

    def queries() -> int:
        look()
        return 0 if world.engine is None else len(world.engine.begun)

    def has_report() -> bool:
        look()
        return bool(world.audit_reports())

    try:
        wait_until(lambda: queries() >= 3, DEADLINE_S, f"queries; {auditor.status.detail}")
        world.end(EndReason.WRONG)
        wait_until(has_report, DEADLINE_S, f"the number is revealed; {auditor.status.detail}")
    finally:
        auditor.stop()
    assert [each.findings for each in world.audit_reports()] == [()]
    assert not world.ledger().is_wrong(world.movement_id)
    assert postings(world) == [], "an end for wrong results that nobody found costs nothing extra"


@pytest.mark.parametrize(
    "point",
    [
        "auditor.number_kept",
        # by day: a contract's broker dies there, test_contract_broker.py
        pytest.param("ledger.entry_written", marks=pytest.mark.nightly),
    ],
)
def test_it_is_killed_at_a_crash_point_and_goes_on_with_the_number_that_it_kept(
    world: AuditedStage, kafka: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The contract has no sample, so nothing is computed, and Spark does not start."""
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(world.folder / "auditor.key"))
    world.sell(sample_ppm=0)

    def process(crash_point: str = "") -> ModuleProcess:
        return service(
            "auditor",
            "auditor",
            world.pipeline.path,
            kafka,
            world.folder / "state",
            crash_point=crash_point,
        )

    with process(point) as killed:
        killed.wait_killed()
    (kept,) = (world.folder / "state" / "auditor").glob("*.numbers.json")
    number = kept.read_text()
    assert len(world.auditor_entries()) == (0 if point == "auditor.number_kept" else 1)
    with process() as running:

        def committed() -> bool:
            running.alive()
            return len(world.auditor_entries()) == 1

        wait_until(committed, DEADLINE_S, lambda: f"the hash is there:\n{running.log()}")
        assert kept.read_text() == number
        world.end()

        def has_report() -> bool:
            running.alive()
            world.round()
            return bool(world.audit_reports())

        wait_until(has_report, DEADLINE_S, lambda: f"the number is revealed:\n{running.log()}")
        wait_until(lambda: kept.read_text() == "{}", DEADLINE_S, "it is not kept any more")
    (fixed, report) = world.auditor_entries()
    assert isinstance(fixed, AuditCommitted)
    assert fixed.digest == commitment(world.audit_reports()[0].nonce)
    assert world.audit_reports()[0].nonce.hex() in number
    assert report.movement_id == world.movement_id
    assert world.contract().ignored == {}
