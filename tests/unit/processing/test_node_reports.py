"""A node reports until it ends, and a report that is not sent is lost."""

from __future__ import annotations

from contextlib import closing

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import topic_settings
from anabranch.process.threads import OWN_THREADS
from anabranch.processing.node_reports import NodeReports
from anabranch.protocol.control.records import NodeReport, Speaker
from anabranch.streams.heartbeats import ControlReader
from harness.waiting import wait_until


def test_it_reports_from_its_start_to_its_end() -> None:
    clock = VirtualClock()
    log = LocalEventLog(clock)
    log.admin().create([topic_settings("control", "p.control.node.north.7")])
    report = NodeReport("north.7", 1, 2)
    reports = NodeReports(log, "p.control.node.north.7", clock, lambda: report, OWN_THREADS)
    speakers = {"p.control.node.north.7": Speaker(frozenset(), reports="north.7")}
    with closing(ControlReader(log, speakers)) as reader:
        reports.start()
        assert wait_until(reader.poll, 10, "a report") == [report]
        reports.end()
        reports.end()
        reader.poll()
        assert reader.rejected == 0


def test_one_that_never_began_can_end() -> None:
    clock = VirtualClock()
    NodeReports(LocalEventLog(clock), "t", clock, lambda: NodeReport("n", 1, 2), OWN_THREADS).end()
