"""``corrected`` and ``live``: context managers that read an output topic.

The client keeps nothing across a crash. A program that must continue stores ``Rows.positions`` with
its own results, and gives them as ``start``. If it stores them after its results, the rows of the
last moment are read again, with the same ids.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar, overload

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.client.following import BUCKETS_KEPT, Follower, places_of
from anabranch.client.security import Security
from anabranch.client.values import Row, Values, key_of, time_of
from anabranch.codec.live_records import (
    EVENT_TIME_HEADER,
    ID_HEADER,
    MISSING_HEADER,
    ORIGIN_HEADER,
    names_in,
    number_in,
    tentative_suffix,
)
from anabranch.ports import EventLog
from anabranch.protocol.edge.origins import NewestIds, Origin
from anabranch.protocol.edge.views import LiveRecord
from anabranch.protocol.errors import DataMissing, LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.reading_to_end import ReadingToEnd

T = TypeVar("T")

_Start = Literal["earliest", "latest"] | Mapping[int, int]
_Schema = Mapping[str, Any] | Path | str | None

_Fetched = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Partition, offset, key, value and headers of a record."""

_FETCH_RECORDS: Final = 10_000
_WAIT_MS: Final = 200
"""Timeout of a fetch, in ms. A cancelled ``async for`` leaves a fetch under way for this long."""


class _Open(ABC):
    """Consumer as a context manager, for ``with`` and ``async with``. One thread at a time uses it.

    The asynchronous forms run the blocking calls in threads, so a fetch may still be under way in
    one thread when another closes the consumer: the lock keeps them apart.
    """

    def __init__(self) -> None:
        """Begin closed; ``with`` opens it."""
        self._one = threading.Lock()
        self._closed = False

    @abstractmethod
    def _open(self) -> None:
        """Connect to the broker. Called once."""

    @abstractmethod
    def _close(self) -> None:
        """Close the consumer, if it was opened."""

    def close(self) -> None:
        """Close the consumer. Idempotent."""
        with self._one:
            if not self._closed:
                self._closed = True
                self._close()

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)


class Rows(_Open, Generic[T]):
    """Iterator over the results of a corrected topic, each once. ``corrected`` returns it."""

    def __init__(
        self, log: EventLog, topic: str, values: Values[T], start: _Start, *, follow: bool
    ) -> None:
        """Prepare the iterator without contacting the broker."""
        super().__init__()
        self._log = log
        self._topic = topic
        self._values = values
        self._start = start
        self._follow = follow
        self._newest: dict[int, NewestIds] = {}
        self._waiting: deque[_Fetched] = deque()
        """Records that were fetched and not returned yet."""
        self._positions: dict[int, int] = {}
        self.foreign = 0
        """Number of records that were skipped because no pipeline wrote them."""

    @property
    def positions(self) -> dict[int, int]:
        """Offset after the last returned row, by partition. ``corrected(..., start=positions)``
        continues there.
        """
        return dict(self._positions)

    def __iter__(self) -> Iterator[Row[T]]:
        """Yield rows, from where the loop before this one ended, however it ended."""
        while self._fetched():
            while (row := self._take()) is not None:
                yield row

    async def __aiter__(self) -> AsyncIterator[Row[T]]:
        """Yield rows as ``__iter__`` does.

        A cancelled loop leaves a fetch under way; the next loop gets its records.
        """
        while await asyncio.to_thread(self._fetched):
            while (row := self._take()) is not None:
                yield row

    def _open(self) -> None:
        places = places_of(self._log, self._topic)
        self._reader = self._log.reader(
            committed=True, headers=True, timestamps=False, follows=self._follow
        )
        ends = {at: self._reader.offsets(at) for at in places}
        self._ends = {at: end for at, (_, end) in ends.items()}
        given = self._start if isinstance(self._start, Mapping) else {}
        begin = {
            at: given.get(at.partition, end if self._start == "latest" else first)
            for at, (first, end) in ends.items()
        }
        self._positions = {at.partition: offset for at, offset in begin.items()}
        # The client notices it a moment later only, when the rows may seem to be at their end.
        for at, offset in begin.items():
            if offset > self._ends[at]:
                raise DataMissing(
                    f"{at.topic}[{at.partition}] ends at {self._ends[at]}, and is to be read from"
                    f" {offset} on: the topic was created again, or cut, since that position was"
                    ' stored. Read it with start="earliest"'
                )
        self._reader.assign(begin)
        self._reading = ReadingToEnd(self._ends, self._reader.position)

    def _close(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.close()

    def _fetched(self) -> bool:
        """Fetch records, unless some wait to be returned; return whether there may be more."""
        with self._one:
            if self._closed:
                return False
            if not hasattr(self, "_reader"):
                raise LocalProtocolError("rows are read in a `with`: with corrected(...) as rows")
            if self._waiting:
                return True
            for chunk in self._reader.fetch(_FETCH_RECORDS, _WAIT_MS):
                # The topic may grow faster than it is read: what was added since is not returned.
                wanted = (
                    chunk.offsets
                    if self._follow
                    else chunk.offsets[: bisect_left(chunk.offsets, self._ends[chunk.at])]
                )
                self._waiting.extend(
                    zip(
                        repeat(chunk.at.partition),
                        wanted,
                        chunk.keys,
                        chunk.values,
                        chunk.headers,
                    )
                )
            return self._follow or not self._reading.is_over() or bool(self._waiting)

    def _take(self) -> Row[T] | None:
        """Return the next of the fetched rows; None: there is none.

        Raises:
            RemoteProtocolError: a value does not fit its type. The next call continues after it.
        """
        while self._waiting:
            partition, offset, key, value, headers = self._waiting.popleft()
            # Before the value is decoded: a loop that is entered again after an error must not meet
            # the same record again.
            self._positions[partition] = offset + 1
            named = dict(headers)
            try:
                origin, ident, time = _identity(named)
            except RemoteProtocolError:
                self.foreign += 1
                continue
            if value is None:
                self.foreign += 1
            # Delivery writes a row again after an unknown outcome: its id is known then.
            elif self._newest.setdefault(partition, NewestIds()).is_new(origin, ident):
                return Row(
                    str(ident),
                    time,
                    key_of(key),
                    self._decoded(partition, offset, value),
                    missing=names_in(named.get(MISSING_HEADER)),
                    origin=origin,
                )
        return None

    def _decoded(self, partition: int, offset: int, value: bytes) -> T:
        """Decode a value; fail with the place of its record."""
        try:
            return self._values.decode(value)
        except RemoteProtocolError as error:
            message = f"{self._topic}[{partition}] offset {offset}: {error}"
            raise RemoteProtocolError(message) from error


def _identity(headers: Mapping[str, bytes | None]) -> tuple[str, RecordId, datetime]:
    """Return the origin, the id and the event time of a record of a corrected topic.

    Raises:
        RemoteProtocolError: the headers are not those that delivery writes.
    """
    origin = (headers.get(ORIGIN_HEADER) or b"").decode("ascii", "replace")
    Origin.parse(origin)
    ident = RecordId.parse((headers.get(ID_HEADER) or b"").decode("ascii", "replace"))
    return origin, ident, time_of(number_in(headers.get(EVENT_TIME_HEADER)))


class Answer(_Open, Generic[T]):
    """Current answer of a live topic. ``live`` returns it."""

    def __init__(
        self, log: EventLog, topic: str, values: Values[T], buckets_kept: int | None
    ) -> None:
        """Prepare the answer without contacting the broker."""
        super().__init__()
        self._log = log
        self._topic = topic
        self._values = values
        self._kept = buckets_kept
        self._changed = False

    def rows(self) -> list[Row[T]]:
        """Return the rows in the order of their ids: those of the newest stable buckets
        (``buckets_kept``), then the tentative ones.
        """
        with self._one:
            found = list(self._follower.view.records())
        return [self._row(record) for record in found]

    def by_key(self) -> list[Row[T]]:
        """Return the newest row of each key."""
        with self._one:
            found = list(self._follower.view.by_key().values())
        return [self._row(record) for record in found]

    @property
    def missing(self) -> tuple[str, ...]:
        """Sources that were missing when the tentative rows were computed."""
        return self._follower.view.missing

    @property
    def shed(self) -> int:
        """Largest per mille of the rows of their input that tentative rows were computed without,
        because a stage was overloaded; 0: none.
        """
        return self._follower.view.shed

    @property
    def in_failure(self) -> bool:
        """Whether some rows are tentative."""
        return self._follower.view.in_failure

    def refresh(self, wait_ms: int = _WAIT_MS) -> bool:
        """Apply the records that have arrived, waiting up to ``wait_ms`` for the first.

        Returns whether the answer has changed since the last call.
        """
        self._poll(wait_ms)
        return self._has_changed()

    def __iter__(self) -> Iterator[Self]:
        """Yield this object after each change of the answer."""
        while not self._closed:
            if self.refresh():
                yield self

    async def __aiter__(self) -> AsyncIterator[Self]:
        """Yield this object as ``__iter__`` does.

        A cancelled loop leaves a fetch under way; the next loop begins with the change that it
        brings.
        """
        while not self._closed:
            await asyncio.to_thread(self._poll, _WAIT_MS)
            if self._has_changed():
                yield self

    def _poll(self, wait_ms: int) -> None:
        """Apply the records that have arrived, and remember whether they changed the answer."""
        with self._one:
            if not self._closed and self._follower.poll(wait_ms):
                self._changed = True

    def _has_changed(self) -> bool:
        """Return whether the answer has changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def _open(self) -> None:
        self._opened = Follower(self._log, self._topic, buckets_kept=self._kept)
        self._opened.catch_up()

    def _close(self) -> None:
        if hasattr(self, "_opened"):
            self._opened.close()

    @property
    def _follower(self) -> Follower:
        """Follower of the topic.

        Raises:
            LocalProtocolError: the answer was not entered.
        """
        if not hasattr(self, "_opened"):
            raise LocalProtocolError("the answer is read in a `with`: with live(...) as answer")
        return self._opened

    def _row(self, record: LiveRecord) -> Row[T]:
        """Return a record of the answer with its value decoded."""
        suffix = "" if record.branch is None else tentative_suffix(record.branch).decode()
        ident = f"{record.id}{suffix}"
        try:
            value = self._values.decode(record.value or b"")
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._topic}, result {ident}: {error}") from error
        return Row(
            ident,
            time_of(record.event_time_ms or 0),
            key_of(record.key),
            value,
            record.branch is None,
            record.missing,
            record.origin,
            record.shed,
        )


@overload
def corrected(
    kafka: str | EventLog,
    topic: str,
    *,
    schema: _Schema = None,
    start: _Start = "earliest",
    follow: bool = True,
    security: Security | None = None,
) -> Rows[dict[str, Any]]: ...


@overload
def corrected(
    kafka: str | EventLog,
    topic: str,
    *,
    of: type[T],
    schema: _Schema = None,
    start: _Start = "earliest",
    follow: bool = True,
    security: Security | None = None,
) -> Rows[T]: ...


def corrected(
    kafka: str | EventLog,
    topic: str,
    *,
    of: Any = dict[str, Any],
    schema: _Schema = None,
    start: _Start = "earliest",
    follow: bool = True,
    security: Security | None = None,
) -> Rows[Any]:
    """Read the results of a corrected topic in a ``with``: each once, in order.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The corrected topic.
        of: Type of the values: a dict, a dataclass, a pydantic model.
        schema: Avro schema of the values, if the output is in Avro.
        start: ``"earliest"``: the first result. ``"latest"``: only new results. A mapping:
            ``positions`` of an earlier run.
        follow: Whether to wait for new results; else the iteration ends where the topic ended when
            it was opened.
        security: Credentials; None: those of the environment (docs/security.md).

    Raises (when it is entered or read):
        ConfigurationError: the topic does not exist, or the schema or a setting is wrong.
        RemoteProtocolError: a value does not fit its type; a loop that is entered again continues
            after it.
        DataMissing: the records to be read next were deleted, by retention or with their topic.
        AdapterError: the broker does not answer, or rejects the request.
    """
    return Rows(_log(kafka, security), topic, Values(of, schema), start, follow=follow)


@overload
def live(
    kafka: str | EventLog,
    topic: str,
    *,
    schema: _Schema = None,
    buckets_kept: int | None = BUCKETS_KEPT,
    security: Security | None = None,
) -> Answer[dict[str, Any]]: ...


@overload
def live(
    kafka: str | EventLog,
    topic: str,
    *,
    of: type[T],
    schema: _Schema = None,
    buckets_kept: int | None = BUCKETS_KEPT,
    security: Security | None = None,
) -> Answer[T]: ...


def live(
    kafka: str | EventLog,
    topic: str,
    *,
    of: Any = dict[str, Any],
    schema: _Schema = None,
    buckets_kept: int | None = BUCKETS_KEPT,
    security: Security | None = None,
) -> Answer[Any]:
    """Maintain the current answer of a live topic in a ``with``: undone results vanish from it.

    Errors are those of ``corrected``.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The live topic.
        of: Type of the values, as in ``corrected``.
        schema: Avro schema of the values, if the output is in Avro.
        buckets_kept: Number of newest stable buckets whose rows ``rows`` returns; None: all.
            ``by_key`` returns every key in any case.
        security: Credentials, as in ``corrected``.
    """
    return Answer(_log(kafka, security), topic, Values(of, schema), buckets_kept)


def _log(kafka: str | EventLog, security: Security | None) -> EventLog:
    """Return the log of the broker at ``kafka``; a log is returned as it is."""
    if not isinstance(kafka, str):
        return kafka
    return KafkaEventLog(kafka, security=None if security is None else security.options())
