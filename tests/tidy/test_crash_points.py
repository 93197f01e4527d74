"""Each crash point of the list stands in the code exactly once, each in the code is on the
list, and a test kills at each.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from harness.syntax import nodes

LIST = "anabranch.process.crash_points"


def points_of(source: str) -> list[str]:
    """Return the names on the list."""
    for node in nodes(source, ast.AnnAssign):
        if isinstance(node.target, ast.Name) and node.target.id == "POINTS":
            assert isinstance(node.value, ast.Dict)
            return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    raise AssertionError("there is no list")


def used_in(source: str) -> list[str]:
    """Return the names in calls of ``crash_point`` or ``self._crash_point``."""
    found = []
    for node in nodes(source, ast.Call):
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else ""
        )
        if name.lstrip("_") == "crash_point":
            texts = [
                inner.value
                for argument in node.args
                for inner in ast.walk(argument)
                if isinstance(inner, ast.Constant)
            ]
            found += [text for text in texts if isinstance(text, str)]
    return found


def killed_in(source: str) -> set[str]:
    """Return the points that a test names: texts that are one, or one with a count."""
    texts = [node.value for node in nodes(source, ast.Constant) if isinstance(node.value, str)]
    return {text.partition(":")[0] for text in texts}


def test_each_crash_point_stands_in_the_code_once(modules: dict[str, str]) -> None:
    used = Counter(
        name for module, source in modules.items() if module != LIST for name in used_in(source)
    )
    assert used == Counter(points_of(modules[LIST]))


def test_a_test_kills_at_each(root: Path, files: list[Path], modules: dict[str, str]) -> None:
    tests = [
        path
        for path in files
        if path.parts[:2] in {("tests", "integration"), ("tests", "spark")} and path.suffix == ".py"
    ]
    killed = set().union(*(killed_in((root / path).read_text()) for path in tests))
    assert sorted(set(points_of(modules[LIST])) - killed) == []


def test_a_point_is_found() -> None:
    assert points_of('POINTS: Final = {"a.b": "x", "c.d": "y"}') == ["a.b", "c.d"]
    assert sorted(
        used_in('crash_point("a")\nself._crash_point("b" if x == 1 else "c")\nother("d")')
    ) == ["a", "b", "c"]
    assert killed_in('x = ["a.b:3", "c.d"]') == {"a.b", "c.d"}
