"""The files by which a cut is asked for and acknowledged."""

from __future__ import annotations

from pathlib import Path

from anabranch.local import drill_links
from anabranch.local.drill_links import Cut, Direction, Link

_A = Link("ingestion/a", 1, 2)


def test_links_are_laid_anew_without_cuts(tmp_path: Path) -> None:
    folder = drill_links.directory_of(tmp_path)
    assert (
        drill_links.read_links(folder),
        drill_links.wanted(folder),
        drill_links.applied(folder),
    ) == ([], {}, {})
    drill_links.lay(folder, [_A])
    drill_links.want(folder, _A.label, Cut())
    drill_links.write_applied(folder, drill_links.wanted(folder))
    assert (
        drill_links.read_links(folder),
        drill_links.wanted(folder),
        drill_links.applied(folder),
    ) == (
        [_A],
        {_A.label: Cut()},
        {_A.label: Cut()},
    )
    drill_links.lay(folder, [_A])
    assert (
        drill_links.read_links(folder),
        drill_links.wanted(folder),
        drill_links.applied(folder),
    ) == ([_A], {}, {})


def test_cuts_of_several_links_are_kept_apart_and_the_newest_counts(tmp_path: Path) -> None:
    drill_links.lay(tmp_path / "drills", [])
    folder = tmp_path / "drills"
    drill_links.want(folder, "ingestion/a", Cut())
    drill_links.want(folder, "ingestion/b", Cut(Direction.TO))
    drill_links.want(folder, "ingestion/a", Cut(Direction.FROM, reset=True))
    assert drill_links.wanted(folder) == {
        "ingestion/a": Cut(Direction.FROM, reset=True),
        "ingestion/b": Cut(Direction.TO),
    }
    drill_links.want(folder, "ingestion/a", None)
    drill_links.want(folder, "ingestion/a", None)  # nothing to heal
    assert drill_links.wanted(folder) == {"ingestion/b": Cut(Direction.TO)}


def test_only_the_owner_may_read_and_write(tmp_path: Path) -> None:
    folder = tmp_path / "drills"
    drill_links.lay(folder, [_A])
    drill_links.want(folder, _A.label, Cut())
    drill_links.write_applied(folder, {})
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_cut_says_what_it_holds() -> None:
    rows = [
        (Cut(), True, True, "cut off from Kafka"),
        (Cut(Direction.TO), True, False, "its requests do not reach Kafka"),
        (Cut(Direction.FROM), False, True, "Kafka's answers do not reach it"),
        (Cut(delay_ms=50), False, False, "slow link to Kafka: all 50 ms late"),
        (
            Cut(Direction.FROM, delay_ms=50),
            False,
            False,
            "slow link to Kafka: Kafka's answers 50 ms late",
        ),
        (Cut(reset=True), True, True, "cut off from Kafka, connections reset"),
    ]
    assert [(cut, cut.holds_to, cut.holds_from, cut.in_words()) for cut, *_ in rows] == rows


def test_a_slow_link_is_slow_in_its_direction_and_its_delay_is_kept_in_the_file(
    tmp_path: Path,
) -> None:
    slow = [Cut(direction, delay_ms=30) for direction in Direction]
    assert [(cut.delay_to_ms, cut.delay_from_ms) for cut in slow] == [(30, 0), (0, 30), (30, 30)]
    drill_links.lay(tmp_path, [_A])
    drill_links.want(tmp_path, _A.label, slow[0])
    assert drill_links.wanted(tmp_path) == {_A.label: slow[0]}
