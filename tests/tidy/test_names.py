"""A module is named by the one idea it holds, and stays small enough to be read at once."""

from __future__ import annotations

import ast
import re
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
FILE_LINES_MAX = 1_000
FUNCTION_LINES_MAX = {"services": 70, "": 90}
"""Maximum lines of a function, in the package and elsewhere: a scenario is read from its top to its
end.
"""
CONSTRUCTOR_ARGUMENTS_MAX = {"tests": 8, "": 6}
"""Maximum arguments of a constructor, in tests and elsewhere. More are several ideas: those that
belong together are one frozen object of settings.
"""

ASSIGNMENTS_MAX = 2
"""More are set line by line."""


def python_files(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".py"]


def limit_of(path: Path, limits: dict[str, int]) -> int:
    """Return the limit of the folder, else that of all others."""
    return limits.get(path.parts[0], limits[""])


def long_functions(path: Path, source: str, lines_max: int) -> list[str]:
    """Functions whose body, without its docstring, is longer."""
    found = []
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            if lines > lines_max:
                found.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    return found


def wide_constructors(name: str, source: str, arguments_max: int) -> list[str]:
    """Classes whose ``__init__`` takes more, ``self`` aside."""
    found = []
    for of in (node for node in nodes(source) if isinstance(node, ast.ClassDef)):
        for node in of.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                a = node.args
                every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
                count = len([each for each in every if each is not None]) - 1
                if count > arguments_max:
                    found.append(f"{name}: {of.name} takes {count} arguments")
    return found


def crowded_assignments(name: str, source: str) -> list[str]:
    """Lines that give three or more variables a value each. One value may be unpacked, if no
    attribute is set.
    """
    found = []
    for node in (node for node in nodes(source) if isinstance(node, ast.Assign)):
        targets = [each for each in node.targets if isinstance(each, ast.Tuple)]
        count = max([len(node.targets), *(len(each.elts) for each in targets)])
        is_one_by_one = isinstance(node.value, ast.Tuple) or len(node.targets) > ASSIGNMENTS_MAX
        sets_attribute = any(
            isinstance(each, ast.Attribute)
            for target in node.targets
            for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        )
        if count > ASSIGNMENTS_MAX and (sets_attribute or is_one_by_one):
            found.append(f"{name}:{node.lineno}: {count} assignments")
    return found


def has_docstring(source: str) -> bool:
    module = nodes(source)[0]
    return isinstance(module, ast.Module) and bool(ast.get_docstring(module))


def test_no_name_says_nothing(files: list[Path]) -> None:
    wrong = [
        str(path)
        for path in python_files(files)
        for part in path.with_suffix("").parts
        if part in SAY_NOTHING
    ]
    assert wrong == []


def test_names_are_lower_case_words(files: list[Path]) -> None:
    legal = re.compile(r"(__)?[a-z][a-z0-9_]*(__)?\.py")
    assert [str(path) for path in python_files(files) if not legal.fullmatch(path.name)] == []


def test_files_and_functions_can_be_read_at_once(root: Path, files: list[Path]) -> None:
    sources = {path: (root / path).read_text() for path in python_files(files)}
    long = [
        f"{path}: {source.count(chr(10))} lines"
        for path, source in sources.items()
        if source.count("\n") > FILE_LINES_MAX
    ]
    assert long == []
    assert [
        line
        for path, source in sources.items()
        for line in long_functions(path, source, limit_of(path, FUNCTION_LINES_MAX))
    ] == []


def test_constructors_take_few_arguments(root: Path, files: list[Path]) -> None:
    assert [
        wide
        for path in python_files(files)
        for wide in wide_constructors(
            str(path), (root / path).read_text(), limit_of(path, CONSTRUCTOR_ARGUMENTS_MAX)
        )
    ] == []


def test_variables_are_set_line_by_line(root: Path, files: list[Path]) -> None:
    assert [
        crowded
        for path in python_files(files)
        for crowded in crowded_assignments(str(path), (root / path).read_text())
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


def test_every_package_module_says_what_it_is(modules: dict[str, str]) -> None:
    assert [name for name, source in modules.items() if not has_docstring(source)] == []


def test_a_long_function_is_found() -> None:
    source = "def f():\n" + "    x = 1\n" * 11
    assert long_functions(Path("x.py"), source, 10) == ["x.py:1: f has 11 lines"]
    assert long_functions(Path("x.py"), source, 11) == []


def test_a_wide_constructor_is_found() -> None:
    source = (
        "class A:\n"
        "    def __init__(self, a, /, b, *c, d=1): ...\n"
        "    def f(self, a, b, c, d, e): ..."
    )
    assert wide_constructors("x", source, 3) == ["x: A takes 4 arguments"]
    assert wide_constructors("x", source, 4) == []


def test_a_crowded_assignment_is_found() -> None:
    source = (
        "a, b, c = f()\n"
        "self.a, self.b = 1, 2\n"
        "self.a, self.b, c = f()\n"
        "a, b, c = 1, 2, 3\n"
        "a = b = c = 1\n"
    )
    found = [f"x:{line}: 3 assignments" for line in (3, 4, 5)]
    assert crowded_assignments("x", source) == found
