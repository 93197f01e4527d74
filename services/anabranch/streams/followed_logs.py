"""Follower of several logs side by side, of which one that cannot be read holds up no other.

When each is opened anew, and which may be relied on, is decided in ``protocol.log.unread_logs``. A
crash loses nothing: a new process opens all logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from anabranch.protocol.errors import ConfigurationError, DataMissing, Unavailable
from anabranch.protocol.log.unread_logs import UnreadLogs

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from anabranch.ports import Clock


class FollowedLog(Protocol):
    """Interface of a follower of one log, or of several that are useless without one another."""

    def poll(self) -> object:
        """Read the available records, without waiting. The first call opens the log and reads it to
        its end.

        Raises:
            Unavailable: the log does not exist yet, or the broker does not answer.
            ConfigurationError: the log contradicts the pipeline file.
            DataMissing: records that this follower needs are lost.
        """

    def close(self) -> None:
        """Close the log. Idempotent."""


FollowedT = TypeVar("FollowedT", bound=FollowedLog)


class FollowedLogs(Generic[FollowedT]):
    """Logs that one process follows, by name. Not thread-safe."""

    def __init__(
        self,
        prepare: Callable[[str], FollowedT],
        clock: Clock,
        logger: FilteringBoundLogger,
        *,
        is_others: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """Follow no log yet. ``prepare`` returns a follower that has contacted nothing.
        ``is_others``: whether another owner writes the log, so that a contradiction to the pipeline
        file there is no mistake of this process' owner.
        """
        self._prepare, self._is_others = prepare, is_others
        self._clock, self._logger = clock, logger
        self._followed: dict[str, FollowedT] = {}
        self._unread = UnreadLogs()

    @property
    def every(self) -> Mapping[str, FollowedT]:
        """Followers of all logs, also of those that are not known (UR1), by name."""
        return self._followed

    def known(self, name: str) -> FollowedT | None:
        """Return the follower of a log; None while nothing may be decided on its ground (UR1)."""
        return self._followed[name] if self._unread.is_known(name) else None

    @property
    def why_unread(self) -> Mapping[str, str]:
        """Reasons why logs cannot be read now, by name."""
        return self._unread.why

    @property
    def stuck(self) -> dict[str, str]:
        """Reasons of the logs that a person must restore, by name (UR4)."""
        return self._unread.stuck

    def waits_for(self, other: str | None = None) -> str | None:
        """Return why the process waits, for ``status``: ``other``, its reason beside these logs,
        and the reasons why logs cannot be read now. None if there is none.
        """
        unread = (f"{name}: {why}" for name, why in self._unread.why.items())
        return "; ".join(filter(None, (other, *unread))) or None

    def follow(self, name: str) -> None:
        """Follow a log from now on; the next ``poll`` opens it. Idempotent."""
        if name not in self._followed:
            self._followed[name] = self._prepare(name)

    def drop(self, name: str) -> None:
        """Close a log, and follow it no more."""
        self._followed.pop(name).close()
        self._unread.dropped(name)

    def poll(self) -> None:
        """Read the available records of all logs, without waiting.

        Raises:
            ConfigurationError: a log that this process' owner writes contradicts the pipeline file.
        """
        for name, followed in list(self._followed.items()):
            if not self._unread.is_due(name, self._clock.monotonic_ms()):
                continue
            try:
                followed.poll()
            except Unavailable as error:
                self._unread.delayed(name, str(error))
            except ConfigurationError as error:
                if not self._is_others(name):
                    raise
                self._unread.delayed(name, str(error))
            except DataMissing as error:
                # What was derived from the lost records goes with their reader.
                followed.close()
                self._followed[name] = self._prepare(name)
                if self._unread.lost(name, str(error), self._clock.monotonic_ms()):
                    self._logger.warning("log_lost_records", log=name, error=str(error))
            else:
                self._unread.read(name)

    def close(self) -> None:
        """Close all logs. Idempotent."""
        for followed in self._followed.values():
            followed.close()
        self._followed.clear()
