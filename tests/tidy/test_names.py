"""A module is named by the one idea it holds, and its constructors take few things."""

from __future__ import annotations

import ast
from pathlib import Path

from harness.syntax import nodes

SAY_NOTHING = {
    "common",
    "utils",
    "util",
    "helpers",
    "helper",
    "base",
    "core",
    "misc",
    "manager",
    "managers",
    "types",
    "shared",
    "stuff",
}
CONSTRUCTOR_ARGUMENTS_MAX = {"tests": 8, "": 6}
"""Maximum arguments of a constructor, in tests and elsewhere. More are several ideas: those that
belong together are one frozen object of settings.
"""


def python_files(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".py"]


def limit_of(path: Path, limits: dict[str, int]) -> int:
    """Return the limit of the folder, else that of all others."""
    return limits.get(path.parts[0], limits[""])


def wide_constructors(name: str, source: str, arguments_max: int) -> list[str]:
    """Classes whose ``__init__`` takes more, ``self`` aside."""
    found = []
    for of in nodes(source, ast.ClassDef):
        for node in of.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                a = node.args
                every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
                count = len([each for each in every if each is not None]) - 1
                if count > arguments_max:
                    found.append(f"{name}: {of.name} takes {count} arguments")
    return found


def test_no_name_says_nothing(files: list[Path]) -> None:
    wrong = [
        str(path)
        for path in python_files(files)
        for part in path.with_suffix("").parts
        if part in SAY_NOTHING
    ]
    assert wrong == []


def test_constructors_take_few_arguments(root: Path, files: list[Path]) -> None:
    assert [
        wide
        for path in python_files(files)
        for wide in wide_constructors(
            str(path), (root / path).read_text(), limit_of(path, CONSTRUCTOR_ARGUMENTS_MAX)
        )
    ] == []


def test_adapters_are_not_scripts(modules: dict[str, str]) -> None:
    """Run as a script, a module in adapters/redis would put its folder first on the path and
    hide the library.
    """
    wrong = [
        name
        for name, source in modules.items()
        if ".adapters." in f"{name}." and "if __name__" in source
    ]
    assert wrong == []


def test_a_wide_constructor_is_found() -> None:
    source = (
        "class A:\n"
        "    def __init__(self, a, /, b, *c, d=1): ...\n"
        "    def f(self, a, b, c, d, e): ..."
    )
    assert wide_constructors("x", source, 3) == ["x: A takes 4 arguments"]
    assert wide_constructors("x", source, 4) == []
