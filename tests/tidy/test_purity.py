"""The pure layers stay pure, and services do not print: read from the syntax trees.

Who may import whom is import-linter's (pyproject.toml). It cannot express what is here: the rules
import nothing but a part of the standard library, whatever libraries there are; and what is called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator

import pytest

from harness.syntax import dotted, nodes

PURE = ("protocol", "codec")
IMPURE_STANDARD = {
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}
IMPURE_CALLS = (
    "time.",
    "random.",
    "secrets.",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "datetime.now",
    "datetime.utcnow",
    "uuid.uuid",
    "uuid4",
)
IMPURE_NAMES = ("print", "open", "input", "exec", "eval")


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(source: str) -> Iterator[tuple[int, str]]:
    for node in nodes(source, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    for found in nodes(source, ast.ImportFrom):
        yield found.lineno, found.module or "." * found.level


def impure_imports(module: str, source: str) -> list[str]:
    """Return the imports of the rules that are neither their own nor a pure part of the standard
    library.
    """
    wrong = []
    for line, imported in imports_of(source):
        top = imported.split(".")[0]
        pure = top in sys.stdlib_module_names and top not in IMPURE_STANDARD
        if top != "anabranch" and not pure:
            wrong.append(f"{module}:{line}: protocol imports {imported}")
    return wrong


def impure_calls(module: str, source: str) -> list[str]:
    named = ((node.lineno, dotted(node)) for node in nodes(source, ast.Attribute))
    wrong = [f"{module}:{line}: {name}" for line, name in named if name.startswith(IMPURE_CALLS)]
    return wrong + calls(module, source, {*IMPURE_NAMES, "uuid4"})


def calls(module: str, source: str, names: Container[str]) -> list[str]:
    """Return where ``source`` calls a function by one of ``names``."""
    return [
        f"{module}:{node.lineno}: {node.func.id}()"
        for node in nodes(source, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_the_rules_import_nothing_but_the_standard_library(modules: dict[str, str]) -> None:
    rules = {name: source for name, source in modules.items() if layer_of(name) == "protocol"}
    assert rules
    assert [line for name, source in rules.items() for line in impure_imports(name, source)] == []


def test_pure_layers_have_no_clock_no_chance_no_input_or_output(modules: dict[str, str]) -> None:
    pure = {name: source for name, source in modules.items() if layer_of(name) in PURE}
    assert [line for name, source in pure.items() for line in impure_calls(name, source)] == []


def test_services_log_and_do_not_print(modules: dict[str, str]) -> None:
    quiet = {name: source for name, source in modules.items() if layer_of(name) != "cli"}
    assert [line for name, source in quiet.items() for line in calls(name, source, {"print"})] == []


@pytest.mark.parametrize(
    "source",
    ["import time", "import pyarrow as pa", "def f():\n    from confluent_kafka import Consumer"],
)
def test_an_impure_import_is_found(source: str) -> None:
    assert len(impure_imports("anabranch.protocol.x", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "time.monotonic()",
        "datetime.now()",
        "random.random()",
        "uuid4()",
        "uuid.uuid4()",
        "os.environ['X']",
        "print(1)",
    ],
)
def test_an_impure_call_is_found(source: str) -> None:
    assert impure_calls("anabranch.protocol.x", source)
