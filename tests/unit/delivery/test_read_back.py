"""Reading back what stands in an output's topics."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable


def test_what_stays_hidden_is_not_waited_for_without_end() -> None:
    """Another producer's transaction is open in the same topic, for ever."""
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings("out", 1)])
    hiding = log.transactional_writer("other")
    hiding.begin()
    hiding.send(TopicPartition("out", 0), b"1")
    hiding.flush()
    reasons: list[str | None] = []
    with pytest.raises(Unavailable, match=r"out\[0\] is readable up to 0 of 1: another producer's"):
        read_back.committed(log, "out", [0], [1], lambda *_: None, reasons.append, headers=False)
    assert reasons, "who waits is told why, all the while"
    hiding.commit()
    taken: list[bytes | None] = []
    read_back.committed(
        log,
        "out",
        [0],
        [1],
        lambda _partition, value, *_: taken.append(value),
        reasons.append,
        headers=False,
    )
    assert taken == [b"1"]
