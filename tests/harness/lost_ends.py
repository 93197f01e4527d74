"""Logs that lose their last record after their ends were asked for."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.reader import LocalLogReader
from anabranch.ports import TopicPartition


def lose_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every log have ended one record later when it was asked, as if the record was lost since
    then with the broker that alone had it.
    """
    real = LocalLogReader.offsets

    def offsets(
        reader: LocalLogReader, at: TopicPartition, wait_ms: int | None = None
    ) -> tuple[int, int]:
        start, end = real(reader, at, wait_ms)
        return start, end + 1

    monkeypatch.setattr(LocalLogReader, "offsets", offsets)
