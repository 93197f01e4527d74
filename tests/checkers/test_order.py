"""The order in which tests start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import order

TESTS = Path(order.__file__).parents[1]


@pytest.mark.parametrize("name", order.LONGEST)
def test_each_file_that_starts_first_is_there(name: str) -> None:
    assert (TESTS / name).is_file()


def test_the_longest_files_start_first_and_stay_whole() -> None:
    longest, second = order.LONGEST[:2]
    files = ["tidy/test_names.py", second, "unit/test_cli.py", longest, second, longest]
    items = [
        SimpleNamespace(path=TESTS / file, name=str(place)) for place, file in enumerate(files)
    ]
    order.sort(items)  # type: ignore[arg-type]
    assert [item.name for item in items] == ["3", "5", "1", "4", "0", "2"]
