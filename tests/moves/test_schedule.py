"""Who is killed when follows from the seed alone."""

from __future__ import annotations

from collections import Counter

from moves.schedule import DELAY_MS_MAX, LOAD_DELAY_MS_MAX, Moment, Party, draw


def test_the_same_seed_draws_the_same_kills_and_a_longer_run_begins_alike() -> None:
    assert draw(7, 50) == draw(7, 50)
    assert draw(7, 50)[:20] == draw(7, 20)
    assert draw(7, 50) != draw(8, 50)


def test_no_party_and_no_moment_is_rare() -> None:
    kills = draw(3, 2 * len(Party) * len(Moment))
    assert [kill.number for kill in kills] == list(range(1, len(kills) + 1))
    assert set(Counter(kill.party for kill in kills).values()) == {2 * len(Moment)}
    assert set(Counter(kill.moment for kill in kills).values()) == {2 * len(Party)}
    assert len({(kill.party, kill.moment) for kill in kills}) > 20, "not always the same pairs"


def test_each_kill_comes_while_the_movement_is_under_way() -> None:
    for kill in draw(5, 200):
        longest_ms = LOAD_DELAY_MS_MAX if kill.moment is Moment.LOAD else DELAY_MS_MAX
        assert 0 <= kill.delay_ms < longest_ms


def test_only_the_parties_that_are_named_are_killed() -> None:
    assert {kill.party for kill in draw(1, 9, [Party.KAFKA])} == {Party.KAFKA}
