"""The compacted view of a live topic: per key the newest value, and a way back (``upsert: true``).

Theory of operation. A reader of a compacted topic knows nothing of kinds: the last record of a key
is its value, a record without a value deletes it. So an undo is written as what it does: each key
that tentative records have touched gets its last stable value back, or is deleted if it never had
one. For that, and for a replacement, each tentative record carries the last stable
value of its key in its headers. Thus the newest record of every key, which is all that compaction
leaves, is the whole state of this machine.

Only the newest tentative version of a key is kept: versions become void from the oldest on, or all
at once by an undo, which is followed by those that still count.

Invariants:
    UV1 the topic has for a key its newest tentative version, else its last stable one, else
        nothing.
    UV2 a transaction has at most one record per key, and none for a key whose visible version and
        last stable one stay as they were.
    UV3 reading the newest record of each key back gives the state that wrote them.
    UV4 a change that is not committed leaves no trace: ``apply`` is called after the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.edge.live_delivery import Kind
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import MIB

UPSERT_BYTES_MAX: Final = 1_024 * MIB
"""Keys and values that the upsert view of a live topic holds in memory, to know what to
restore: beyond it the process would be killed.
"""

_KEY_BYTES: Final = 200
"""About what the dictionaries need for a key beside its bytes and those of its values."""


@dataclass(frozen=True, slots=True)
class Version:
    """One value of a key."""

    id: RecordId
    event_time_ms: int
    value: bytes
    branch: tuple[int, int] | None = None
    """Of a tentative version; None: it is stable."""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a key."""

    stable: Version | None = None
    tentative: Version | None = None

    @property
    def visible(self) -> Version | None:
        """What stands in the topic (UV1)."""
        return self.tentative if self.tentative is not None else self.stable

    @property
    def size_bytes(self) -> int:
        """Of its values."""
        return sum(len(v.value) for v in (self.stable, self.tentative) if v is not None)


@dataclass(frozen=True, slots=True)
class Write:
    """A record to write: ``state.visible``, with ``state.stable`` in its headers if that is
    not it; no visible version: a deletion.
    """

    key: bytes
    kind: Kind
    """INSERTION, TENTATIVE, or UNDO: an older stable version, or nothing, is back."""
    state: State


Rows = Iterable[tuple[bytes, Version]]
"""(key, version), in the order of their ids."""


class UpsertView:
    """The state of one output's compacted view."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._keys: dict[bytes, State] = {}
        self._touched: dict[int, set[bytes]] = {}
        """Keys with a tentative version, by its bucket."""
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    def state(self, key: bytes) -> State:
        """What is known of ``key``."""
        return self._keys.get(key, State())

    def restore(self, key: bytes, state: State) -> None:
        """The next record of the topic, read back (UV3): a later one of the same key replaces an
        earlier one.

        Raises:
            ConfigurationError: there is more than memory should hold.
        """
        before = self._keys.pop(key, None)
        if before is not None:
            self._size_bytes -= len(key) + before.size_bytes + _KEY_BYTES
            if before.tentative is not None:
                self._touched[before.tentative.id.bucket].discard(key)
        if state.visible is None:
            return
        self._keys[key] = state
        self._size_bytes += len(key) + state.size_bytes + _KEY_BYTES
        if state.tentative is not None:
            self._touched.setdefault(state.tentative.id.bucket, set()).add(key)
        if self._size_bytes > UPSERT_BYTES_MAX:
            raise ConfigurationError(
                f"output {self._output}: the upsert view of its live topic holds more than"
                f" {UPSERT_BYTES_MAX} bytes ({len(self._keys)} keys); leave out `upsert` and keep"
                " the newest value per key where the topic is read"
            )

    def transaction(
        self, *, undo: bool, insertions: Rows, stable_upto: int, tentative: Rows
    ) -> list[Write]:
        """What one live transaction writes, with stable delivered up to ``stable_upto`` after
        it. Nothing changes here yet (UV4).
        """
        after: dict[bytes, State] = {}
        for bucket, keys in self._touched.items():
            if undo or bucket <= stable_upto:
                after.update({key: State(self._keys[key].stable) for key in sorted(keys)})
        inserted = set()
        for key, version in insertions:
            now = after.get(key) or self.state(key)
            after[key] = State(version, now.tentative)
            inserted.add(key)
        for key, version in tentative:
            now = after.get(key) or self.state(key)
            after[key] = State(now.stable, version)
        return [
            Write(key, _kind(state, inserted=key in inserted), state)
            for key, state in after.items()
            if state != self.state(key)
        ]

    def apply(self, writes: Iterable[Write]) -> None:
        """They are committed."""
        for write in writes:
            self.restore(write.key, write.state)
        for bucket in [bucket for bucket, keys in self._touched.items() if not keys]:
            del self._touched[bucket]


def _kind(state: State, *, inserted: bool) -> Kind:
    if state.tentative is not None:
        return Kind.TENTATIVE
    return Kind.INSERTION if inserted else Kind.UNDO
