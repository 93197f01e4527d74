"""Several logs that are followed side by side, of which some cannot be read."""

from __future__ import annotations

import pytest
import structlog

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    Unavailable,
)
from anabranch.protocol.log.unread_logs import OPEN_AGAIN_MS
from anabranch.streams.followed_logs import FollowedLogs


class Scripted:
    """A follower that fails as its script says, by name."""

    def __init__(self, name: str, errors: dict[str, AnabranchError]) -> None:
        self._name, self._errors = name, errors
        self.polls, self.is_closed = 0, False

    def poll(self) -> None:
        self.polls += 1
        if self._name in self._errors:
            raise self._errors[self._name]

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def errors() -> dict[str, AnabranchError]:
    return {}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def logs(errors: dict[str, AnabranchError], clock: VirtualClock) -> FollowedLogs[Scripted]:
    made = FollowedLogs(
        lambda name: Scripted(name, errors),
        clock,
        structlog.get_logger(),
        is_others=lambda name: name == "c",
    )
    for name in ("a", "b", "c"):
        made.follow(name)
    return made


@pytest.mark.parametrize("error", [Unavailable("away"), DataMissing("gone")])
def test_one_that_cannot_be_read_holds_up_no_other(
    logs: FollowedLogs[Scripted], errors: dict[str, AnabranchError], error: AnabranchError
) -> None:
    errors["a"] = error
    logs.poll()
    assert (logs.known("a"), logs.waits_for()) == (None, f"a: {error}")
    assert logs.known("b") is logs.every["b"]
    errors["c"] = error
    logs.poll()
    assert logs.why_unread == {"a": str(error), "c": str(error)}
    assert logs.every["b"].polls == 2


def test_one_that_lost_records_is_opened_anew(
    logs: FollowedLogs[Scripted], errors: dict[str, AnabranchError], clock: VirtualClock
) -> None:
    logs.poll()
    before = logs.every["a"]
    assert logs.known("a") is before
    errors["a"] = DataMissing("gone")
    logs.poll()
    assert before.is_closed
    assert (logs.known("a"), logs.stuck) == (None, {})
    logs.poll()
    assert (logs.known("a"), logs.stuck) == (None, {"a": "gone"})
    waiting = logs.every["a"]
    for _ in range(3):
        logs.poll()
    assert waiting.polls == 0
    errors.clear()
    clock.advance(OPEN_AGAIN_MS)
    logs.poll()
    assert (logs.known("a"), logs.waits_for(), logs.stuck) == (waiting, None, {})


def test_a_contradiction_is_the_owners_mistake_unless_another_owner_wrote_it(
    logs: FollowedLogs[Scripted], errors: dict[str, AnabranchError]
) -> None:
    errors["c"] = ConfigurationError("other width")
    logs.poll()
    assert logs.waits_for("no leader") == "no leader; c: other width"
    errors["b"] = ConfigurationError("other width")
    with pytest.raises(ConfigurationError):
        logs.poll()


def test_one_that_is_not_followed_any_more_is_closed_and_named_no_more(
    logs: FollowedLogs[Scripted], errors: dict[str, AnabranchError]
) -> None:
    errors["a"] = DataMissing("gone")
    logs.poll()
    dropped = logs.every["a"]
    logs.drop("a")
    assert (dropped.is_closed, logs.waits_for(), sorted(logs.every)) == (True, None, ["b", "c"])
    kept = logs.every["b"]
    logs.close()
    logs.close()
    assert kept.is_closed
