"""Shards of a stage: the rows of its inputs that each takes.

Theory of operation. A stage that works key by key can be split (Aurora*'s box splitting). Each of
its *shards* is a stage of its own, with a stream, a state and replicas of its own. It runs the same
function on its *share* of the inputs: the rows whose key has a hash in its interval
(``protocol.stage.intervals``). A stage that reads the split one takes the streams of all shards as
one input: a bucket of it is there when it is there of every shard. The shards agree on nothing
among themselves: each fetches all blocks of its inputs, and its reader drops the rows of others
before Spark, which costs far more for a row than reading it. An input of which no column is named
is read whole by every shard: a small one that is joined to the others.

The function must be such that what it makes of a key depends on the rows of this key alone;
otherwise the shards together make something else than the whole. Nothing here can see that;
``anabranch test`` compares both on sample rows.

The state of a shard is that of its keys. So a stream keeps the share that its first epoch names,
with the hash (BL16 of ``protocol.log.boundary_log``).

Invariants:
    KP1 a row of an input whose columns are named is exactly one shard's, as the intervals of the
        shards divide all hashes (IV3); one of another input is every shard's.
    KP2 equal keys of all inputs are one shard's: their columns have the same types, one after the
        other, and no type in which equal values differ (floating-point numbers, nested values).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.protocol.stage.intervals import KEY_HASH, Interval

_KEY_TYPES: Final = (
    "int",
    "bool",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "date32",
    "timestamp",
    "decimal",
)
"""Prefixes of the Arrow type names that a column of a key may have."""


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of the inputs that one shard takes."""

    interval: Interval
    by: Mapping[str, tuple[str, ...]]
    """Per input, the columns of its key; without columns every shard takes all of its rows."""

    def text(self) -> str:
        """Return the share as the shard's epochs state it:
        ``01 of row digest: reports by segment``.
        """
        inputs = (
            f"{name} by {', '.join(columns)}" if columns else f"{name} whole"
            for name, columns in sorted(self.by.items())
        )
        return f"{self.interval.bits} of {KEY_HASH}: {'; '.join(inputs)}"

    def wrong_keys(self, types: Mapping[str, Mapping[str, str]]) -> str:
        """Return why rows with these columns cannot be divided among the shards (KP2); empty if
        they can.

        Args:
            types: By input, the names and types of its columns, as Arrow writes them.
        """
        first: tuple[str, tuple[str, ...]] | None = None
        for name, columns in self.by.items():
            missing = [column for column in columns if column not in types[name]]
            if missing:
                return f"{name} has no column {', '.join(missing)}; it has {', '.join(types[name])}"
            found = tuple(types[name][column] for column in columns)
            for column, kind in zip(columns, found, strict=True):
                if not kind.startswith(_KEY_TYPES):
                    return (
                        f"{column} of {name} is {kind}, and a key is text, whole or decimal"
                        " numbers, times, bytes or true and false"
                    )
            if columns and first is not None and found != first[1]:
                return (
                    f"the key of {name} is ({', '.join(found)}), that of {first[0]}"
                    f" ({', '.join(first[1])}): equal keys would come to different shards"
                )
            if columns:
                first = first or (name, found)
        return ""
