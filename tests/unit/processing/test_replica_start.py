"""The start of a replica: its process begins an epoch, or its node stops it, whichever comes first;
and waits where there is nothing to start from.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.process.metrics import Registry
from anabranch.process.threads import OWN_THREADS
from anabranch.processing import replica_start
from anabranch.processing.own_split import OwnSplit, ShardSplit, SplitConfirmedError
from anabranch.processing.replica_report import ReplicaReport
from anabranch.processing.replica_start import (
    SharedBeginRight,
    StageRecovery,
    StartingProcess,
    StoppingError,
)
from anabranch.protocol.errors import Fenced
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import EpochStarted
from anabranch.protocol.stage.splitting import Attempt, SplitPhase


class Starting:
    """A process of replica 0 on north.0 that is about to begin an epoch."""

    def __init__(self, *, has_place: bool = True) -> None:
        self.stopping, self.right = threading.Event(), SharedBeginRight(OWN_THREADS.condition())
        self.log_state = LogState(["0"])
        context = SimpleNamespace(clock=VirtualClock(), threads=OWN_THREADS, stopping=self.stopping)
        own = SimpleNamespace(node="north.0", has_place=has_place, replica="0", label="s.0")
        inputs = SimpleNamespace(changed=OWN_THREADS.condition(), contact=None)
        nothing = cast("Any", None)
        self.made = StartingProcess(
            cast("Any", context),
            cast("Any", own),
            cast("Any", inputs),
            nothing,
            nothing,
            self.right,
        )

    def begin(self) -> None:
        self.made.may_begin(self.log_state)


def test_n5_the_first_counts() -> None:
    used, withdrawn = Starting(), Starting()
    used.begin()
    assert not used.right.withdraw()
    assert withdrawn.right.withdraw()
    with pytest.raises(StoppingError):
        withdrawn.begin()
    assert withdrawn.right.withdraw(), "it stays so"


def test_n5_who_may_not_begin_uses_no_right() -> None:
    stopped, replaced = Starting(), Starting(has_place=False)
    stopped.stopping.set()
    with pytest.raises(StoppingError):
        stopped.begin()
    replaced.log_state.apply(0, EpochStarted("0", "f", "0" * 32, node="north.1"))
    with pytest.raises(Fenced, match="another node"):
        replaced.begin()
    assert stopped.right.withdraw()
    assert replaced.right.withdraw()


@pytest.fixture
def recovery(monkeypatch: pytest.MonkeyPatch) -> StageRecovery:
    """Recovery of a replica that starts."""
    monkeypatch.setattr(replica_start, "HalfBeginning", lambda *_: None)
    context: Any = SimpleNamespace(
        log=None,
        pipeline=SimpleNamespace(name="p", bucket_ms=100),
        clock=VirtualClock(),
        stopping=threading.Event(),
        logger=structlog.get_logger(),
        registry=Registry(),
    )
    own: Any = SimpleNamespace(
        stage_name="s", process="0", label="s.0", peers=[], stage=SimpleNamespace(ha="passive")
    )
    return StageRecovery(
        context,
        own,
        cast("Any", SimpleNamespace(gone=dict)),
        cast("Any", None),
        cast("Any", SimpleNamespace(ask=lambda _: "asked")),
        ReplicaReport(context, own),
    )


def test_sb5_a_primary_with_nothing_to_start_from_takes_less_than_it_claimed(
    recovery: StageRecovery,
) -> None:
    """Its own checkpoint is of no use, and the other disk was out of reach when it began."""
    copies: list[bool] = []
    recovery.standby = cast(
        "Any",
        SimpleNamespace(
            copy=lambda *, takes_over=False: copies.append(takes_over),
            awaits_acknowledgement=False,
        ),
    )
    recovery.wait("blocks of a")
    assert copies == [True]
    assert "blocks of a" in str(recovery._report.status.waiting_for)


def test_one_whose_lower_claim_is_not_acknowledged_says_so(recovery: StageRecovery) -> None:
    """It has what it needs: a person who looks for blocks would look in vain."""
    recovery.standby = cast(
        "Any",
        SimpleNamespace(copy=lambda *, takes_over=False: False, awaits_acknowledgement=True),
    )
    recovery.wait("blocks of a")
    status = recovery._report.status
    assert (status.state, "blocks of a" in str(status.waiting_for)) == ("waiting", False)
    assert "acknowledgement" in str(status.waiting_for)


def test_hv13_a_primary_with_nothing_to_start_from_ends_a_shard_that_is_split(
    recovery: StageRecovery,
) -> None:
    """The store is away; another process of the shard, or its own comparison, has confirmed it."""
    attempt = Attempt(SplitPhase.WITHDRAWN, 3)
    cast("Any", recovery._context.pipeline).halves = lambda _: ["s.0", "s.1"]
    recovery.split = ShardSplit(recovery._context, "s")
    recovery.split.access = OwnSplit(lambda: attempt)
    recovery.wait("blocks of a")
    attempt = Attempt(SplitPhase.CONFIRMED, 4)
    with pytest.raises(SplitConfirmedError):
        recovery.wait("blocks of a")


def test_ti11_a_claim_is_lowered_until_the_broker_acknowledges_it(recovery: StageRecovery) -> None:
    assert recovery.claimed == 0, "it was no standby"
    assert recovery.lower_claim(30)
    answers, claims = [True, False, False], list[int]()

    def lower(bucket: int) -> bool:
        claims.append(bucket)
        return answers.pop()

    recovery.standby = cast("Any", SimpleNamespace(claimed=50, lower_claim=lower))
    assert recovery.claimed == 50
    with capture_logs() as logged:
        assert not recovery.lower_claim(30)
        waiting_for = recovery._report.status.waiting_for
        assert waiting_for is not None
        assert "acknowledgement" in waiting_for, "people see why nothing begins"
        assert not recovery.lower_claim(30)
    assert [each["event"] for each in logged] == ["claim_not_lowered"], "it is logged once"
    assert recovery.lower_claim(30)
    assert claims == [30, 30, 30]
    answers.append(False)
    recovery._context.stopping.set()
    with pytest.raises(StoppingError):
        recovery.lower_claim(30)
