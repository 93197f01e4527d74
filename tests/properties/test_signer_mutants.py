"""Bugs planted in who may sign a stream: each is found, and without a bug nothing is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from harness.signed_streams import SignedStream
from simulation.planting import Mutant, planted

_F = "protocol.federation.stream_signers:StreamSigners"
MUTANTS = [
    Mutant(
        "anybody_may_sign",
        f"{_F}.may_sign",
        "participant in self.named(stream, at_ms)",
        "True",
        "FJ2",
    ),
    Mutant(
        "withdrawal_ignored",
        f"{_F}.named",
        "(term.until_ms is None or at_ms < term.until_ms)",
        "True",
        "FJ2",
    ),
    Mutant(
        "withdrawal_reaches_back",
        f"{_F}.named",
        "(term.until_ms is None or at_ms < term.until_ms)",
        "term.until_ms is None",
        "FJ5",
    ),
    Mutant(
        "anybodys_word_counts",
        f"{_F}.add",
        'return "not signed by its owner"',
        "pass",
        "FJ3",
    ),
    Mutant(
        "anybody_sums_up",
        f"{_F}.why_not",
        "is_snapshot and signature.participant != stream.owner",
        "False",
        "FJ4",
    ),
]


def judge() -> Iterator[str]:
    """A stage is sold and comes home; then its partner tries what it may not."""
    world = SignedStream()
    world.run("north")
    world.name_signer("south")
    world.run("south")
    world.run("north")
    world.sum_up("south")
    world.name_signer("south", is_withdrawn=True)
    with closing(world.read()) as reader:
        if reader.log_state.upto != 6:
            yield f"a stage that was sold is known up to {reader.log_state.upto}, not 6"
        if reader.counts["undecodable"] != 1:
            yield "a partner's log snapshot counts"
        world.run("south", is_honest=False)
        reader.read_to_end()
        if reader.log_state.upto != 6:
            yield "a partner's records count after the withdrawal"
    other = SignedStream()
    other.run("north")
    other.name_signer("south", by="south")
    other.run("south", is_honest=False)
    with closing(other.read()) as reader:
        if reader.log_state.upto != 2:
            yield "a partner names itself"


def test_without_a_bug_nothing_is_found() -> None:
    assert list(judge()) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    with planted(mutant):
        assert list(judge()) != []
