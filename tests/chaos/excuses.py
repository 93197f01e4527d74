"""Excuses that a fault gives for errors in logs and ended processes. Each is bound to a fault's
target, its time, and a number.

A fault that strikes one service explains what that service says and does, one that strikes the
broker what anybody does who needs it. Both explain it from their begin until some time after their
end, and each so many times: what comes more often, later or elsewhere is wrong.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from anabranch.local.state_file import ProcessRow
from chaos.complaints import Complaint
from chaos.judgement import Injected
from chaos.schedule import BROKER, REDIS, Kind, service_of

NETWORK: Final = frozenset({Kind.CUT, Kind.CUT_TO, Kind.CUT_FROM, Kind.RESET, Kind.SLOW})
STILL: Final = frozenset({Kind.PAUSE, Kind.ZOMBIE})
BROKER_AWAY: Final = frozenset({Kind.BROKER_STOP, Kind.BROKER_KILL, Kind.BROKER_PAUSE})
STARTS: Final = frozenset({Kind.KILL, Kind.KILL_TWICE, Kind.TERMINATE, Kind.DISK})

_DOWN: Final = frozenset({"restarting", "failed"})
_SERVERS: Final = frozenset({"kafka", "redis", "proxy"})
_EXAMPLE_CHARS: Final = 700
_START: Final = -2
"""In place of a fault's number."""
_CLOCK_MS: Final = 1_000
"""A fault is noted so long after it was begun at most: what it explains may be told before."""
_ENDS_AFTER_MS: Final = 90_000
"""A service gives up waiting for the broker after a minute; then it is still to be started
again.
"""

ENDS: Final[Mapping[Kind, int]] = {
    Kind.KILL: 1,
    Kind.KILL_TWICE: 2,
    Kind.TERMINATE: 1,
    Kind.DISK: 1,
    Kind.ZOMBIE: 2,
    Kind.PAUSE: 1,
    Kind.CUT: 1,
    Kind.CUT_TO: 1,
    Kind.CUT_FROM: 1,
    Kind.RESET: 1,
    Kind.SLOW: 1,
    Kind.BROKER_STOP: 1,
    Kind.BROKER_KILL: 1,
    Kind.BROKER_PAUSE: 1,
    Kind.REDIS_KILL: 1,
}
"""How often a process may end for each fault that strikes it: the budget of restarts. One of
the broker strikes every service.
"""


class Ended(NamedTuple):
    """A process that ended by itself or was ended, as the supervisor told."""

    target: str
    at_ms: int


@dataclass(slots=True)
class EndsSeen:
    """The ends of all processes, from looking now and then at what the supervisor says of them."""

    ended: list[Ended] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def look(self, rows: Iterable[ProcessRow], now_ms: int) -> None:
        """Note the supervisor's rows. A service that is down has ended once more than it was
        started again; a server is being started.
        """
        for row in rows:
            target = f"{row.service}/{row.name}"
            before = self._counts.get(target, 0)
            is_down = row.pid is None and row.state in _DOWN and row.service not in _SERVERS
            count = max(before, row.restarts + is_down)
            self.ended += [Ended(target, now_ms)] * (count - before)
            self._counts[target] = count


@dataclass(frozen=True, slots=True)
class Allowed:
    """An error in a log that a fault explains."""

    pattern: re.Pattern[str]
    why: str
    own: frozenset[Kind] = frozenset()
    """Faults of the service that the log is of."""
    anywhere: frozenset[Kind] = frozenset()
    """Faults of another one."""
    after_s: float = 60.0
    """Maximum time after the fault's end, in seconds."""
    most: int = 2
    """Per log and fault; where no fault is needed, per log."""
    starting: int = 0
    """Additional number per log before everything is ready for the first time."""

    def needs_fault(self) -> bool:
        """Whether it explains nothing by itself."""
        return bool(self.own | self.anywhere)


_LOG: Final = re.compile(r"(?P<service>[a-z_]+)-(?P<name>.+?)(?:\.copy-(?P<number>\d+))?\.log")


def target_of(file: str) -> str:
    """SERVICE/NAME of the process that writes a log; a second copy's is that of the first
    one. Empty: the supervisor's.
    """
    if file.startswith("kafka.log"):
        return BROKER
    if file.startswith("redis.log"):
        return REDIS
    found = _LOG.match(file)
    return "" if found is None else f"{found['service']}/{found['name']}"


def unexplained(
    found: Iterable[Complaint],
    allowed: Sequence[Allowed],
    faults: Sequence[Injected],
    ready_ms: int = 0,
) -> list[str]:
    """Return the errors that nothing explains, in words, those that differ only in numbers once.
    ``ready_ms``: when everything was ready for the first time.
    """
    used: Counter[tuple[int, int, str]] = Counter()
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in found:
        if not any(
            _explains(number, entry, each, faults, used)
            or _starts(number, entry, each, ready_ms, used)
            for number, entry in enumerate(allowed)
        ):
            groups[each.file, re.sub(r"\d+", "0", each.text)].append(each.text)
    return [
        f"{file}: {texts[0][-_EXAMPLE_CHARS:]} ({len(texts)} times)"
        for (file, _), texts in groups.items()
    ]


def _explains(
    number: int,
    entry: Allowed,
    complaint: Complaint,
    faults: Sequence[Injected],
    used: Counter[tuple[int, int, str]],
) -> bool:
    if not entry.pattern.search(complaint.text):
        return False
    target = target_of(complaint.file)
    causes = [-1]
    if entry.needs_fault():
        causes = [
            fault.number
            for fault in faults
            if fault.kind in (entry.own if fault.target == target else entry.anywhere)
            and complaint.at_ms is not None
            and fault.begun_ms - _CLOCK_MS
            <= complaint.at_ms
            <= fault.ended_ms + entry.after_s * 1_000
        ]
    for cause in causes:
        if used[number, cause, complaint.file] < entry.most:
            used[number, cause, complaint.file] += 1
            return True
    return False


def _starts(
    number: int,
    entry: Allowed,
    complaint: Complaint,
    ready_ms: int,
    used: Counter[tuple[int, int, str]],
) -> bool:
    if (
        complaint.at_ms is None
        or complaint.at_ms >= ready_ms
        or not entry.pattern.search(complaint.text)
    ):
        return False
    used[number, _START, complaint.file] += 1
    return used[number, _START, complaint.file] <= entry.starting


@dataclass(slots=True)
class _Budget:
    fault: Injected
    left: dict[str, int] = field(default_factory=dict)

    def takes(self, end: Ended) -> bool:
        fault = self.fault
        if fault.target != end.target and (
            fault.kind not in BROKER_AWAY or service_of(end.target) in _SERVERS
        ):
            return False
        if not fault.begun_ms - _CLOCK_MS <= end.at_ms <= fault.ended_ms + _ENDS_AFTER_MS:
            return False
        return self.left.setdefault(end.target, ENDS.get(fault.kind, 0)) > 0


def needless_ends(ended: Iterable[Ended], faults: Sequence[Injected]) -> list[str]:
    """Return the ends of processes beyond what the faults explain, in words."""
    budgets = [_Budget(fault) for fault in sorted(faults, key=lambda fault: fault.ended_ms)]
    wrong: Counter[str] = Counter()
    for end in sorted(ended, key=lambda end: end.at_ms):
        taken = next((budget for budget in budgets if budget.takes(end)), None)
        if taken is None:
            wrong[end.target] += 1
        else:
            taken.left[end.target] -= 1
    return [
        f"{target} ended {count} times more often than the faults explain"
        for target, count in wrong.items()
    ]
