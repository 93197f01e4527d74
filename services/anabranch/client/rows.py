"""``corrected`` and ``live``: output topics as Python sees them, in a ``with`` or ``async with``.

What holds after a crash: nothing is kept here. ``Rows.positions`` is what a program stores with its
own results to go on from there; where it stores them after its results, those of the last moment
come again, with the same ids.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
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
    tentative_suffix,
)
from anabranch.ports import Chunk, EventLog
from anabranch.protocol.edge.origins import NewestIds
from anabranch.protocol.edge.views import LiveRecord
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import RecordId

T = TypeVar("T")

_Start = Literal["earliest", "latest"] | Mapping[int, int]
_Schema = Mapping[str, Any] | Path | str | None

_FETCH_RECORDS: Final = 10_000
_WAIT_MS: Final = 200


class _Open(ABC):
    """One thing that is open, for ``with`` and ``async with``. A thread at a time has it."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._closed = False

    @abstractmethod
    def _open(self) -> None:
        """Open it, once."""

    @abstractmethod
    def _close(self) -> None:
        """Close what was opened."""

    def close(self) -> None:
        """Give the consumer back. Idempotent."""
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
    """The results of a corrected topic, each once. Made by ``corrected``."""

    def __init__(
        self, log: EventLog, topic: str, values: Values[T], start: _Start, *, follow: bool
    ) -> None:
        """Nothing is contacted yet."""
        super().__init__()
        self._log = log
        self._topic = topic
        self._values = values
        self._start = start
        self._follow = follow
        self._newest: dict[int, NewestIds] = {}
        self._positions: dict[int, int] = {}
        self.foreign = 0
        """Records that are none of anabranch's; they were left out."""

    @property
    def positions(self) -> dict[int, int]:
        """Per partition the offset after the last row that was given: ``corrected(...,
        start=positions)`` goes on there.
        """
        return dict(self._positions)

    def __iter__(self) -> Iterator[Row[T]]:
        while (found := self._next()) is not None:
            for at, offset, row in found:
                self._positions[at] = offset + 1
                if row is not None:
                    yield row

    async def __aiter__(self) -> AsyncIterator[Row[T]]:
        while (found := await asyncio.to_thread(self._next)) is not None:
            for at, offset, row in found:
                self._positions[at] = offset + 1
                if row is not None:
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
        self._reader.assign(begin)

    def _close(self) -> None:
        if hasattr(self, "_reader"):
            self._reader.close()

    def _next(self) -> list[tuple[int, int, Row[T] | None]] | None:
        """(partition, offset, row) of what is there, with None for what is no new row; None:
        the end.
        """
        with self._one:
            if self._closed:
                return None
            if not hasattr(self, "_reader"):
                raise LocalProtocolError("rows are read in a `with`: with corrected(...) as rows")
            found = [
                each
                for chunk in self._reader.fetch(_FETCH_RECORDS, _WAIT_MS)
                for each in self._rows(chunk)
            ]
            if (
                not found
                and not self._follow
                and all(self._reader.position(at) >= end for at, end in self._ends.items())
            ):
                return None
            return found

    def _rows(self, chunk: Chunk) -> Iterator[tuple[int, int, Row[T] | None]]:
        partition = chunk.at.partition
        for offset, key, value, headers in zip(
            chunk.offsets, chunk.keys, chunk.values, chunk.headers, strict=True
        ):
            named = dict(headers)
            ident, time = named.get(ID_HEADER), named.get(EVENT_TIME_HEADER)
            producer = named.get(ORIGIN_HEADER)
            if ident is None or time is None or value is None or producer is None:
                self.foreign += 1
                yield partition, offset, None
                continue
            origin = producer.decode("ascii", "replace")
            parsed = RecordId.parse(ident.decode("ascii", "replace"))
            if not self._newest.setdefault(partition, NewestIds()).is_new(origin, parsed):
                yield partition, offset, None
                continue
            missing = named.get(MISSING_HEADER) or b""
            names = tuple(missing.decode("utf-8", "replace").split(",")) if missing else ()
            yield (
                partition,
                offset,
                Row(
                    str(parsed),
                    time_of(int(time)),
                    key_of(key),
                    self._values.decode(value),
                    missing=names,
                    origin=origin,
                ),
            )


class Answer(_Open, Generic[T]):
    """The answer of a live topic as it is known now. Made by ``live``."""

    def __init__(
        self, log: EventLog, topic: str, values: Values[T], buckets_kept: int | None
    ) -> None:
        """Nothing is contacted yet."""
        super().__init__()
        self._log = log
        self._topic = topic
        self._values = values
        self._kept = buckets_kept

    def rows(self) -> list[Row[T]]:
        """All of it: stable rows, then tentative ones, in the order of their ids. Of stable
        buckets the newest (``buckets_kept``).
        """
        return [self._row(record) for record in self._follower.view.records()]

    def by_key(self) -> list[Row[T]]:
        """The newest row of each key."""
        return [self._row(record) for record in self._follower.view.by_key().values()]

    @property
    def missing(self) -> tuple[str, ...]:
        """Sources without which tentative rows were made."""
        return self._follower.view.missing

    @property
    def in_failure(self) -> bool:
        """Whether some of it is tentative."""
        return self._follower.view.in_failure

    def refresh(self, wait_ms: int = _WAIT_MS) -> bool:
        """Take what is there; whether the answer changed."""
        with self._one:
            return not self._closed and self._follower.poll(wait_ms)

    def __iter__(self) -> Iterator[Self]:
        """Itself after each change."""
        while not self._closed:
            if self.refresh():
                yield self

    async def __aiter__(self) -> AsyncIterator[Self]:
        while not self._closed:
            if await asyncio.to_thread(self.refresh):
                yield self

    def _open(self) -> None:
        self._follower = Follower(self._log, self._topic, buckets_kept=self._kept)
        while not self._follower.caught_up:
            self._follower.poll(_WAIT_MS)

    def _close(self) -> None:
        if hasattr(self, "_follower"):
            self._follower.close()

    def _row(self, record: LiveRecord) -> Row[T]:
        suffix = "" if record.branch is None else tentative_suffix(record.branch).decode()
        value = self._values.decode(record.value or b"")
        ident = f"{record.id}{suffix}"
        return Row(
            ident,
            time_of(record.event_time_ms or 0),
            key_of(record.key),
            value,
            record.branch is None,
            record.missing,
            record.origin,
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
    """For a ``with``: the results of a corrected topic, each once, in order.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The corrected topic.
        of: The type of values: a dict, a dataclass, a pydantic model.
        schema: The Avro schema of the values, where the output is in Avro.
        start: The first result, what comes, or ``positions`` of an earlier run.
        follow: Go on with what comes; else end where the topic ended when it was opened.
        security: How to get in; None: as the environment says (docs/security.md).

    Raises (when it is entered or read):
        ConfigurationError: no such topic, a schema or a setting that is not as it must be.
        RemoteProtocolError: a value is none of the type. AdapterError: the broker rejects the
        request, or retention has removed what was to be read next.
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
    """For a ``with``: the answer of a live topic. What is taken back is gone from it; arguments and
    errors are those of ``corrected``.

    Args:
        kafka: Address of the broker, ``host:port``.
        topic: The live topic.
        of: The type of values.
        schema: The Avro schema of the values, where the output is in Avro.
        buckets_kept: Newest stable buckets that ``rows`` still tells; None: all. ``by_key`` has
            every key.
        security: How to get in.
    """
    return Answer(_log(kafka, security), topic, Values(of, schema), buckets_kept)


def _log(kafka: str | EventLog, security: Security | None) -> EventLog:
    if not isinstance(kafka, str):
        return kafka
    return KafkaEventLog(kafka, security=None if security is None else security.options())
