"""A prepared stage whose one query asks its driver for batches as Spark does, on one thread."""

from __future__ import annotations

import json
import threading
from typing import Any

from anabranch.codec.plan_offsets import INITIAL, position_of
from anabranch.ports import QueryDriver, QueryOutput
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.stage.planner import PlanTraits


class AskingStage:
    """``ports.PreparedStage`` and its one query."""

    def __init__(self) -> None:
        self.traits = PlanTraits(is_stateful=True, is_batch_safe=True)
        self.batches = self.questions = 0
        self.fails = False
        self.output: QueryOutput | None = None
        self.place: str | None = "not started"
        self._stopping, self._thread = threading.Event(), threading.Thread()

    def start(
        self, query: str, driver: QueryDriver, output: QueryOutput, place: str | None, done: object
    ) -> AskingStage:
        del done
        self.output, self.place = output, place
        self._thread = threading.Thread(target=self._run, args=(query, driver))
        self._thread.start()
        return self

    def _run(self, query: str, driver: QueryDriver) -> None:
        start: dict[str, Any] = dict(INITIAL)
        while not self._stopping.is_set():
            self.questions += 1
            found = driver.advance(query, "a", start)
            if found is None:
                continue
            offset = json.loads(json.dumps(found))
            before = position_of(start)
            driver.begin(query, [offset], 100 * offset["bucket"], before)
            driver.finish(query, self.batches, ())
            start, self.batches = offset, self.batches + 1

    def ended(self, wait_ms: int) -> bool:
        if self.fails:
            raise StageFunctionError("f raised")
        self._thread.join(wait_ms / 1_000)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def is_alive(self) -> bool:
        """Return whether the query runs."""
        return self._thread.is_alive()
