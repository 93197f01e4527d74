"""docs/protocol.md names what is there: each rule has a row, each module, test and planted
bug that it names exists, and no module is left out.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.syntax import tree

PAGE = Path("docs/protocol.md")
PROTOCOL = Path("services/anabranch/protocol")
RULES = 22
NAMED_TEST = re.compile(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)")


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its first two lines."""
    below = text.split(f"\n{heading}\n")[1]
    table = re.search(r"(?:^\|.*\|\n)+", below, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in table[0].splitlines()[2:]
    ]


def absent_tests(root: Path, text: str) -> list[str]:
    return [
        f"{name} in {path}"
        for name, path in NAMED_TEST.findall(text)
        if f"def {name}(" not in (root / path).read_text()
    ]


def absent_modules(root: Path, cells: list[str]) -> list[str]:
    names = [name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)]
    return [
        name
        for name in names
        if not (root / "services/anabranch" / name.replace(".", "/")).with_suffix(".py").exists()
    ]


def prefixes(module: Path) -> set[str]:
    """Return the letters before the numbers of the invariants with which a module opens."""
    opening = ast.get_docstring(tree(module.read_text())) or ""
    return set(re.findall(r"^    ([A-Z]{1,3})\d+ ", opening, re.MULTILINE))


def module_names(paths: list[Path]) -> dict[str, Path]:
    """Return the modules by the names in the table: by their package, too, if two packages have one
    of that name.
    """
    stems = [path.stem for path in paths]
    return {
        path.stem if stems.count(path.stem) == 1 else f"{path.parent.name}.{path.stem}": path
        for path in paths
    }


def of_several(modules: dict[str, set[str]]) -> list[str]:
    """Prefixes with which more than one module numbers its invariants, or that are a single
    letter.
    """
    every = sorted(prefix for its in modules.values() for prefix in its)
    return sorted({prefix for prefix in every if every.count(prefix) > 1 or len(prefix) == 1})


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / PAGE).read_text()


def test_each_rule_is_stated_once_and_has_a_row(page: str) -> None:
    stated = page.split("\n## The rules\n")[1].split("\n### Where they are\n", maxsplit=1)[0]
    assert [int(number) for number in re.findall(r"^(\d+)\. \*\*", stated, re.MULTILINE)] == list(
        range(1, RULES + 1)
    )
    table = rows(page, "### Where they are")
    assert [int(row[0]) for row in table] == list(range(1, RULES + 1))
    assert all(NAMED_TEST.search(row[2]) for row in table)


def test_each_module_and_test_that_the_rules_name_exists(root: Path, page: str) -> None:
    assert absent_tests(root, page) == []
    assert absent_modules(root, [row[1] for row in rows(page, "### Where they are")]) == []


def test_each_planted_bug_that_the_rules_name_is_one(root: Path, page: str) -> None:
    mutants = {
        name
        for path in (root / "tests/simulation/planted_bugs").glob("*.py")
        for name in re.findall(r'Mutant\(\s*"(\w+)"', path.read_text())
    }
    named = {
        name for row in rows(page, "### Where they are") for name in re.findall(r"`(\w+)`", row[3])
    }
    assert len(named) > RULES
    assert sorted(named - mutants) == []


def test_no_two_modules_number_their_invariants_alike(root: Path, files: list[Path]) -> None:
    modules = {str(path): prefixes(root / path) for path in files if path.suffix == ".py"}
    assert len([its for its in modules.values() if its]) > 30
    assert {path.partition("/")[0] for path, its in modules.items() if its} == {
        "services",
        "tests",
        "demo",
    }
    assert of_several(modules) == []
    assert of_several({"a": {"AB"}, "b": {"AB", "C"}, "c": {"CD"}}) == ["AB", "C"]


def test_each_module_with_invariants_is_in_the_table_with_their_letters(
    root: Path, page: str
) -> None:
    table = {
        name: set(row[2].split(", "))
        for row in rows(page, "## The invariants")
        for name in re.findall(r"`([\w.]+)`", row[0])
    }
    paths = module_names(sorted((root / PROTOCOL).rglob("*.py")))
    modules = {name: prefixes(path) for name, path in paths.items()}
    assert sorted(name for name, its in modules.items() if its and name not in table) == []
    assert sorted(name for name, its in table.items() if not modules.get(name, {"?"}) <= its) == []


def test_no_text_of_the_code_names_a_rule_that_is_not_one(root: Path, files: list[Path]) -> None:
    sources = [
        path
        for path in files
        if path.suffix == ".py" and path.parts[0] in ("services", "tests", "examples", "demo")
    ]
    cited = [
        (path, number)
        for path in sources
        for number in re.findall(r"\brules? (\d+)\b", (root / path).read_text())
    ]
    assert len(cited) > 100
    assert [
        f"{path}: rule {number}" for path, number in cited if not 1 <= int(number) <= RULES
    ] == []


def test_what_is_not_there_is_found(root: Path, tmp_path: Path) -> None:
    text = (
        "[test_nothing](../tests/tidy/test_text.py)"
        " [test_a_sleep_and_a_skip_are_found](../tests/tidy/test_text.py)"
    )
    assert absent_tests(root, text) == ["test_nothing in tests/tidy/test_text.py"]
    assert absent_modules(root, ["`protocol.stage.replica`, `protocol.nothing`"]) == [
        "protocol.nothing"
    ]
    (tmp_path / "a.py").write_text('"""A.\n\nInvariants:\n    AB1 x\n    CD12 y\n"""\n')
    assert prefixes(tmp_path / "a.py") == {"AB", "CD"}
    assert list(module_names([Path("x/a.py"), Path("x/b.py"), Path("y/b.py")])) == [
        "a",
        "x.b",
        "y.b",
    ]
