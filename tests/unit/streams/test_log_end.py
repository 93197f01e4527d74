"""``streams.log_end``: a reader comes to the end that was asked for, or says that nothing comes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.codec.catalog import TopicSettings
from anabranch.protocol.errors import Unavailable
from anabranch.streams.log_end import OwnContact, read_to
from harness.silent_cluster import SilentCluster


class Steps:
    """A partition of which each poll shows so many records."""

    def __init__(self, *counts: int) -> None:
        self.offset, self.polls = 0, 0
        self._counts: Iterator[int] = iter(counts)

    def poll(self, wait_ms: int) -> None:
        assert wait_ms > 0
        self.polls += 1
        self.offset += next(self._counts)

    def read(self, end: int) -> None:
        read_to(end, "t", lambda: self.offset, self.poll, silent_polls_max=2)


def test_it_reads_to_the_end_and_no_further() -> None:
    steps = Steps(3, 0, 0, 4, 0, 0, 3, 1)
    steps.read(10)
    assert (steps.offset, steps.polls) == (10, 7)


def test_where_nothing_is_left_nothing_is_asked() -> None:
    steps = Steps()
    steps.read(0)
    assert steps.polls == 0


def test_where_nothing_comes_it_says_so() -> None:
    steps = Steps(3, 0, 0, 0)
    with pytest.raises(
        Unavailable, match="t: no record arrived after offset 3, but the log ended at 10"
    ):
        steps.read(10)


def test_an_error_of_the_reader_is_its_own() -> None:
    with pytest.raises(StopIteration):
        Steps(1).read(10)


def test_the_own_cluster_answers_or_not() -> None:
    log = SilentCluster()
    log.admin().create([TopicSettings("t", 1)])
    contact = OwnContact(log, "t")
    assert contact.answers()
    log.is_silent = True
    assert not contact.answers()
    contact.close()
