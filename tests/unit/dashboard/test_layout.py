"""The positions of the graph's boxes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from anabranch.dashboard.layout import places
from anabranch.pipeline.file import load

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_each_box_is_right_of_those_that_it_reads_and_none_overlap() -> None:
    for file in sorted(EXAMPLES.glob("*/*.yaml")):
        if "pipeline:" not in file.read_text():
            continue
        found = places(load(file))
        column = {each.key: each.column for each in found}
        assert all(column[key] < each.column for each in found for key in each.reads), file
        taken = Counter(
            (each.column, row) for each in found for row in range(each.row, each.row + each.rows)
        )
        assert max(taken.values()) == 1, file


def test_each_participant_has_rows_of_its_own() -> None:
    found = places(load(EXAMPLES / "federation/north.yaml"))
    rows: dict[str, set[int]] = {}
    for each in found:
        rows.setdefault(each.participant, set()).update(range(each.row, each.row + each.rows))
    lanes = list(rows.values())
    assert sum(map(len, lanes)) == len(set().union(*lanes))


def test_a_source_stands_with_its_reader_and_an_output_with_its_stage() -> None:
    found = {each.key: each for each in places(load(EXAMPLES / "toll_road/pipeline.yaml"))}
    assert {each.participant for each in found.values()} == {"north"}
    assert [found[f"stream reports_{n}"].row for n in range(3)] == [0, 1, 2]
    assert (found["stream tolls"].row, found["stream tolls"].rows) == (0, 3)
    assert found["output tolls"].column == 3
