"""A reader asks and hears answers, on a log in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.process.frame import ServiceContext
from anabranch.protocol.control.records import Ask, AskOutcome, AskReply, ControlRecord, Speaker
from anabranch.protocol.stage.recomputation import ASK_AGAIN_MS
from anabranch.streams.heartbeats import ControlReader, ControlWriter
from anabranch.streams.recompute_client import RecomputeClient
from harness import outputs
from harness.outputs import STAGE

OWN = "p.control.processing.next.0"


@pytest.fixture
def context() -> ServiceContext:
    clock = VirtualClock()
    log, of = LocalEventLog(clock), outputs.pipeline("p", replicas=2)
    outputs.create_topics(log, of)
    log.admin().create([TopicSettings(OWN, 1)])
    return outputs.context(log, of, clock, SeededEntropy(1), "processing", "next.0")


@pytest.fixture
def recompute_client(context: ServiceContext) -> Iterator[RecomputeClient]:
    made = RecomputeClient(context, "processing.next.0", [STAGE, "reports"])
    yield made
    made.close()
    made.close()


def sent_records(context: ServiceContext) -> list[ControlRecord]:
    reader, found = (
        ControlReader(
            context.log, {OWN: Speaker(frozenset(), "processing.next.0")}, from_beginning=True
        ),
        list[ControlRecord](),
    )
    found.extend(reader.to_end())
    reader.close()
    return found


def answer(
    context: ServiceContext, ask: ControlRecord, outcome: AskOutcome, replica: str, reason: str = ""
) -> None:
    assert isinstance(ask, Ask)
    writer = ControlWriter(context.log, f"p.control.processing.{STAGE}.{replica}", context.clock)
    assert writer.write([AskReply(ask.stream, replica, ask.reader, ask.number, outcome, reason, 0)])
    writer.close()


def gauge(context: ServiceContext, name: str, stream: str = STAGE) -> float | None:
    return context.registry.get_sample_value(
        name, {"pipeline": "p", "reader": "processing.next.0", "stream": stream}
    )


def test_an_ask_its_answers_and_the_end(
    context: ServiceContext, recompute_client: RecomputeClient
) -> None:
    with capture_logs() as logs:
        assert recompute_client.ask({STAGE: (3, 9)}) == "requested buckets 3..9 of totals"
        (ask,) = sent_records(context)
        assert isinstance(ask, Ask)
        assert (ask.stream, ask.reader, ask.bucket_first, ask.bucket_last) == (
            STAGE,
            "processing.next.0",
            3,
            9,
        )
        assert recompute_client.ask({STAGE: (3, 9)}) == "requested buckets 3..9 of totals"
        assert sent_records(context) == [ask]
        answer(context, ask, AskOutcome.UNABLE, "0", "its input is gone")
        assert (
            recompute_client.ask({STAGE: (3, 9)})
            == "requested buckets 3..9 of totals (replica 0: its input is gone)"
        )
        answer(context, ask, AskOutcome.DIFFERENT, "1", "bucket 4 has other rows")
        assert recompute_client.ask({STAGE: (3, 9)}).startswith(
            "no replica can recompute buckets 3..9 of totals: replica 0: its input is gone;"
        )
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("blocks_gone", "warning"),
        ("blocks_gone", "warning"),
        ("recomputed_rows_differ", "error"),
        ("blocks_gone", "error"),
    ]
    assert gauge(context, "anabranch_blocks_gone") == 1
    recompute_client.stop_requesting()
    assert gauge(context, "anabranch_blocks_gone") == 0
    assert gauge(context, "anabranch_recompute_requests_total") == 1
    recompute_client.stop_requesting()


def test_an_ask_that_nobody_hears_is_repeated(
    context: ServiceContext, recompute_client: RecomputeClient
) -> None:
    recompute_client.ask({STAGE: (3, 9)})
    context.clock.sleep_ms(ASK_AGAIN_MS)
    recompute_client.ask({STAGE: (3, 9)})
    first, second = sent_records(context)
    assert isinstance(first, Ask)
    assert isinstance(second, Ask)
    assert second.number > first.number


def test_nobody_is_asked_for_a_stream_that_is_not_the_pipelines(
    context: ServiceContext, recompute_client: RecomputeClient
) -> None:
    assert (
        recompute_client.ask({"reports": (3, 9)})
        == "no replica can recompute reports: it is another pipeline's"
    )
    assert sent_records(context) == []
    assert gauge(context, "anabranch_blocks_gone", "reports") == 1
