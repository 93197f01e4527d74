"""Records of the memory log that belong to no transaction, or to a committed one."""

from __future__ import annotations

from anabranch.adapters.memory.partition import Fate, Record


def is_committed(record: Record) -> bool:
    """Return whether a reader of committed records is shown ``record``, if it is no marker."""
    return record.transaction is None or record.transaction.fate is Fate.COMMITTED
