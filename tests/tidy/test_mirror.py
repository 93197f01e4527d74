"""Each module of the pure layers has a unit-test file of its own, each module is used, and
each shared limit is in force.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from harness.syntax import nodes, tree

LIMITS = "anabranch.protocol.limits"

DECLARATIONS = {"errors", "limits"}
"""Names and numbers only; their use is what is tested (limits: below)."""

ENTRY_POINTS = {
    "anabranch",
    "anabranch.cli",
    "anabranch.client",
    "anabranch.stateful",
    "anabranch.adapters.spark.planner_fork.launch",
    "anabranch.adapters.spark.planner_path.pyspark_anabranch",
}
"""Started or imported by users, or by PySpark, which finds it by its name."""

SHIPPED = "anabranch.adapters.memory."
"""The ports in memory: for the tests of services, and of whoever writes one."""

STARTS_SPARK = {
    "anabranch.adapters.spark.session.start_session",
    "harness.stage_processes",
    "harness.stages.RunningStage",
    "pyspark.sql.SparkSession",
}


def mirror(module: str) -> Path:
    """``anabranch.codec.blocks`` -> ``tests/unit/codec/test_blocks.py``."""
    _, *folders, name = module.split(".")
    return Path("tests/unit", *folders, f"test_{name}.py")


def names_in(source: str) -> set[str]:
    named = {node.id for node in nodes(source, ast.Name)}
    return named | {node.attr for node in nodes(source, ast.Attribute)}


def imported_modules(source: str) -> set[str]:
    found = {alias.name for node in nodes(source, ast.Import) for alias in node.names}
    for node in nodes(source, ast.ImportFrom):
        if node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def limits_of(source: str) -> dict[str, bool]:
    """Each constant, and whether the text that follows says what failure it prevents."""
    body = tree(source).body
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
    return found


def users(limits: Iterable[str], modules: dict[str, str]) -> dict[str, list[str]]:
    """Return the modules that name each limit."""
    names = {name: names_in(source) for name, source in modules.items() if name != LIMITS}
    return {limit: [name for name, its in names.items() if limit in its] for limit in limits}


def test_each_pure_module_has_its_own_test_file(root: Path, modules: dict[str, str]) -> None:
    pure = [
        name
        for name, source in modules.items()
        if name.startswith(("anabranch.protocol.", "anabranch.codec."))
        and len(tree(source).body) > 1
    ]
    missing = [
        str(mirror(name))
        for name in pure
        if name.split(".")[-1] not in DECLARATIONS and not (root / mirror(name)).is_file()
    ]
    assert missing == []


def test_each_unit_test_file_has_its_module(files: list[Path], modules: dict[str, str]) -> None:
    """A renamed module takes its tests along. A large module may have several:
    ``test_edge.py``, ``test_edge_guards.py``.
    """
    stems = tuple(str(mirror(name).with_suffix("")) for name in modules if "." in name)
    layers = {name.split(".")[1] for name in modules if name.count(".") > 1}
    mirrors = [
        path
        for path in files
        if path.parts[:2] == ("tests", "unit") and len(path.parts) > 3 and path.parts[2] in layers
    ]
    assert [
        str(path)
        for path in mirrors
        if path.name.startswith("test_") and not str(path).startswith(stems)
    ] == []


def test_each_module_is_used(modules: dict[str, str]) -> None:
    """Another module uses it, or it is started as a service or by name; tests and examples do not
    count for the services' own layers.
    """
    used: set[str] = set()
    for name, source in modules.items():
        used |= {imported for imported in imported_modules(source) if imported != name}
        used |= {other for other in modules if f'"{other}"' in source and other != name}
    dead = [
        name
        for name, source in modules.items()
        if name not in used | ENTRY_POINTS
        and not name.startswith(SHIPPED)
        and not name.endswith("__main__")
        and names_in(source)
    ]
    assert dead == []


def starts_spark(source: str) -> bool:
    return bool(imported_modules(source) & STARTS_SPARK)


def test_what_starts_spark_is_where_nothing_runs_beside_it(root: Path, files: list[Path]) -> None:
    """Beside other tests it would be slow, and make them slow."""
    beside = [
        path
        for path in files
        if path.suffix == ".py" and path.parts[:2] in {("tests", "integration"), ("tests", "unit")}
    ]
    assert [str(path) for path in beside if starts_spark((root / path).read_text())] == []


def test_a_start_of_spark_is_found() -> None:
    assert starts_spark("from harness.stages import Feed, RunningStage")
    assert starts_spark("def f():\n    from pyspark.sql import SparkSession")
    assert not starts_spark("from harness.stages import Feed")


def test_each_shared_limit_is_of_several_modules_and_says_why(modules: dict[str, str]) -> None:
    """The limit of one module stands in that module."""
    limits = limits_of(modules[LIMITS])
    assert len(limits) > 10
    inside = names_in(modules[LIMITS]) & {"MIB", "KIB"}
    of_few = {name: by for name, by in users(limits, modules).items() if len(by) <= 1}
    assert {name: by for name, by in of_few.items() if name not in inside} == {}
    assert (
        sorted(name for name, says_why in limits.items() if not says_why and name not in inside)
        == []
    )


def test_a_silent_limit_and_one_of_a_single_module_are_found() -> None:
    assert limits_of('A: Final = 1\n"""Why."""\nB: Final = 2\n') == {"A": True, "B": False}
    modules = {LIMITS: "A: Final = 1", "a": "from x import limits\nf(limits.A)", "b": "f(B)"}
    assert users("AC", modules) == {"A": ["a"], "C": []}
