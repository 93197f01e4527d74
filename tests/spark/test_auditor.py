"""The auditor with real Spark and a real broker: what the stage's function gives is compared with
what a seller made by other means.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.spark.engine_start import start_engine
from anabranch.adapters.system.clock import SystemClock
from anabranch.auditor.service import AuditorService
from anabranch.protocol.federation.audit import Fault, Finding
from harness.audited_stage import STAGE, AuditedStage
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 120


def judged(auditor: AuditorService, outcome: str) -> float:
    labels = {"pipeline": auditor._pipeline.name, "stage": STAGE, "outcome": outcome}
    name = "anabranch_audited_buckets_total"
    return auditor._context.registry.get_sample_value(name, labels) or 0.0


def other_total(table: pa.Table) -> pa.Table:
    index = table.schema.get_field_index("total")
    return table.set_column(index, "total", pa.array([1] * table.num_rows, pa.int64()))


def test_spark_makes_what_an_honest_seller_makes_and_finds_the_one_wrong_bucket(
    kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_SPARK_MEMORY", "512m")
    monkeypatch.setenv("ANABRANCH_SPARK_COMPILERS", "quick")
    monkeypatch.chdir(tmp_path)
    world = AuditedStage(
        KafkaEventLog(kafka),
        SystemClock(),
        tmp_path,
        federation=topic_prefix,
        prefix=topic_prefix,
    )
    world.sell()
    auditor = world.auditor(start_engine=start_engine, kafka=kafka)

    def seen(condition: Callable[[], object]) -> Callable[[], object]:
        def looked() -> object:
            world.round()
            auditor.step()
            return condition()

        return looked

    try:
        wait_until(seen(lambda: judged(auditor, "right") > 5), DEADLINE_S, "right buckets")
        assert world.audit_reports() == []
        world.spoil = lambda _, table: table if world.spoilt else other_total(table)
        wait_until(seen(world.audit_reports), DEADLINE_S, "a finding")
        (report,) = world.audit_reports()
        assert report.findings == (Finding(world.spoilt[0], Fault.WRONG_RESULT),)
        assert world.ledger().is_wrong(world.movement_id)
        assert auditor.status.detail["left_out"] in ({STAGE: {}}, {})
    finally:
        auditor.stop()
        world.close()
