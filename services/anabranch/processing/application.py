"""The Spark application of a node: one Java, one plan server, a session for each replica.

Sessions share everything that costs time and memory. What the stages' functions name in them - views, functions, settings - they do not share.

What holds after a crash: nothing of it is needed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.adapters.spark.own_watermark import watermark_of
from anabranch.adapters.spark.plan_socket import PlanServer
from anabranch.adapters.spark.session import session_beside, start_session
from anabranch.adapters.system.scratch import Scratch
from anabranch.protocol.errors import AnabranchError, LocalProtocolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.adapters.spark.settings import SparkSettings

Answer = Callable[[str, str, dict[str, Any]], dict[str, Any] | None]
"""(lineage, input, position) -> the next offset, or None: nothing yet."""

_BETWEEN = " "
"""Between a replica's label and a lineage in the name of a query: neither has one."""


def query_name(label: str, lineage: str) -> str:
    """The name of the query of a replica in one of its lineages."""
    return f"{label}{_BETWEEN}{lineage}"


def _label_of(query: str) -> str:
    return query.partition(_BETWEEN)[0]


class Application:
    """Started when it is made, and ended by ``close``. Thread-safe."""

    def __init__(self, name: str, settings: SparkSettings, scratch_root: Path, import_roots: list[str], width_ms: int) -> None:
        """Start Spark.

        Args:
            name: Of the application, for people.
            settings: Of the node's Spark.
            scratch_root: Below it this process keeps its temporary files.
            import_roots: Folders in which the workers find the stages' modules.
            width_ms: Of a bucket.

        Raises:
            ConfigurationError: there is no Java that Spark runs on.
        """
        self.settings, self.scratch, self._width_ms = settings, Scratch(scratch_root), width_ms
        self._answers: dict[str, Answer] = {}
        self._sessions: dict[str, SparkSession] = {}
        self._building = threading.Lock()
        self._plans = PlanServer(self._answer, self._watermark_of, self.scratch.socket_path("plans"))
        self._first = start_session(
            name,
            master=settings.master,
            memory=settings.memory,
            state_partitions=settings.state_partitions,
            import_roots=import_roots,
            scratch=self.scratch,
            compilers=settings.compilers,
        )

    @property
    def socket(self) -> str:
        """Where readers ask for plans."""
        return self._plans.path

    @contextmanager
    def building(self, label: str) -> Iterator[SparkSession]:
        """A new session in which the replica ``label`` builds its query and runs it; one builds at a time: what a function uses is noted per process."""
        with self._building:
            self._sessions[label] = session = session_beside(self._first)
            yield session

    def serve(self, label: str, answer: Answer) -> None:
        """From now on ``answer`` plans the queries of the replica ``label``."""
        for query in [query for query in list(self._plans.errors) if _label_of(query) == label]:
            del self._plans.errors[query]
        self._answers[label] = answer

    def failure(self, label: str) -> Exception | None:
        """What the last question that could not be answered ended with: its reader sees no more than a closed connection."""
        return next((error for query, error in list(self._plans.errors.items()) if _label_of(query) == label), None)

    def forget(self, label: str) -> None:
        """Nobody plans the queries of ``label`` any more: they get nothing."""
        self._answers.pop(label, None)
        self._sessions.pop(label, None)

    def check(self) -> None:
        """Raises AnabranchError where Java has ended: all queries have ended with it."""
        process = getattr(self._first.sparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark offers no other way
        if process is not None and process.poll() is not None:
            raise AnabranchError(f"Spark's Java ended with code {process.poll()}: out of memory, or killed")

    def close(self) -> None:
        """End Spark and the plan server. Idempotent."""
        self._plans.close()
        self._first.stop()

    def _answer(self, query: str, name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        label, _, lineage = query.partition(_BETWEEN)
        answer = self._answers.get(label)
        return None if answer is None else answer(lineage, name, start)

    def _watermark_of(self, query: str) -> Callable[[int], None]:
        label = _label_of(query)
        if label not in self._sessions:
            raise LocalProtocolError(f"{query} runs, but {label} has no session")
        return watermark_of(self._sessions[label], query, self._width_ms)
