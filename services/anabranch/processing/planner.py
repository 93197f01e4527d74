"""Follows the input streams and answers the data source readers: the shell around ``protocol.serialization``.

Spark polls the sources of a query one after the other, in an order that is fixed within a run. The input that is asked first leads: only
its question makes a new plan, the others get their part of it, so all inputs of a batch advance together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from anabranch.adapters.spark.offsets import offset_of, position_of
from anabranch.protocol.serialization import Plan, next_plan
from anabranch.runtime.boundary_reader import BoundaryReader

if TYPE_CHECKING:
    from anabranch.ports import EventLog
    from anabranch.protocol.plans import PlanTraits

_LEADER_WAIT_S: Final = 0.05
"""A question waits this long for a plan: fewer questions while idle."""
_POLL_MS: Final = 100


class InputFollower(threading.Thread):
    """Follows one input's boundary log until closed; ``changed`` is notified at every new record."""

    def __init__(self, log: EventLog, topic: str, writers: list[str], changed: threading.Condition) -> None:
        super().__init__(name=f"follow {topic}", daemon=True)
        self._changed, self._closing = changed, threading.Event()
        self.reader = BoundaryReader(log, topic, writers, lock=changed)
        self.error: BaseException | None = None

    def run(self) -> None:
        """The thread's body. An error is kept for ``raise_error``: the stage ends with it."""
        try:
            while not self._closing.is_set():
                if self.reader.poll(_POLL_MS):
                    with self._changed:
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self.error = error
        finally:
            self.reader.close()

    def raise_error(self) -> None:
        """Raise in the caller what ended the thread."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Let the thread end."""
        self._closing.set()


class Planner:
    """Answers "what does input X run after position P" for one query."""

    def __init__(self, inputs: Mapping[str, InputFollower], traits: PlanTraits, changed: threading.Condition, *, rows_max: int,
                 stopping: Callable[[], bool]) -> None:  # fmt: skip
        self._inputs, self._traits, self._changed, self._rows_max, self._stopping = inputs, traits, changed, rows_max, stopping
        self._leader: str | None = None
        self._plan: Plan | None = None
        self._warm = False

    def answer(self, name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        """The next offset of input ``name`` after the offset with the fields ``start``; None: nothing yet."""
        position = position_of(start)
        with self._changed:
            if self._leader is None:
                self._leader = name
            if self._plan is not None and self._plan.before == position:
                return offset_of(self._plan, name)
            if name != self._leader or self._stopping():
                return None
            plan = self._next(position)
            if plan is None:
                self._changed.wait(_LEADER_WAIT_S)
                plan = self._next(position)
            if plan is None:
                return None
            self._plan = plan
            return offset_of(plan, name)

    def _next(self, position: Any) -> Plan | None:
        folds = {name: follower.reader.fold for name, follower in self._inputs.items()}
        for fold in folds.values():
            fold.forget(position.bucket)
        plan = next_plan(position, folds, self._traits, rows_max=self._rows_max, warm_up=not self._warm)
        self._warm = True
        return plan

    def waiting_for(self) -> str | None:
        """The input that holds everything back: the one that is complete least far."""
        with self._changed:
            return min(self._inputs, key=lambda name: self._inputs[name].reader.fold.upto) if self._inputs else None

    def available(self) -> int:
        """The last bucket that is complete on all inputs."""
        with self._changed:
            return min(f.reader.fold.upto for f in self._inputs.values())
