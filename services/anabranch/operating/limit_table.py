"""All limits in one table, as the sources of this package say them.

A limit is a constant that stands beside what it bounds and says in the text under it what it bounds
and what goes wrong beyond it: all of ``protocol.limits``, and in other modules those that are
called ``MAX`` or ``MIN``. Read from the sources, so nothing is imported, and the table says what is
in force.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_PACKAGE: Final = "anabranch"
_ALL: Final = "anabranch.protocol.limits"
"""The module of which every constant that says why is a limit."""
_IS_LIMIT: Final = re.compile(r"(^|_)(MAX|MIN)(_|$)")
_MENTIONED: Final = re.compile(r"^_?[A-Z0-9_]*(MAX|MIN)[A-Z0-9_]*: Final", re.MULTILINE)
_UNITS: Final = {"MS": "ms", "S": "s", "SECONDS": "s", "MIB": "MiB", "MICRO": "micro-units"}
_COUNTED: Final = re.compile(
    "ALARMS|ASKS|BATCHES|BLOCKS|BOUNDARIES|BRACKETS|BUCKETS|BYTES|CELLS|CHARACTERS|CLIENTS|CONTRACTS"
    "|CORES|FIELDS|FINDINGS|HEARTBEATS|HOPS|IDS|INPUTS|ITEMS|KEYS|LINES|LOGINS|MESSAGES|PARTITIONS"
    "|PARAMETERS|PARTS|PIECES|PIPELINES|POSITIONS|PROPOSALS|QUERIES|RANGES|RECORDS|REPLICAS|ROWS|SAMPLES|STEPS|STREAMS"
    "|TASKS|TIERS|TIMELINES|TIMES|TRIES|UNITS|VALUES|VOTERS"
)
"""Words of a name that say what is counted."""
_WHOLE_MAX: Final = 10**18
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: lambda a, b: int(a) << int(b),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit."""

    name: str
    value: float
    unit: str
    """Empty: a plain number."""
    module: str
    """Where it is in force, or ``protocol.limits``."""
    text: str
    """What it bounds, and what goes wrong beyond it."""

    def shown(self) -> str:
        """Value and unit, for people."""
        for unit, factor, larger in (
            ("ms", 86_400_000, "d"),
            ("ms", 3_600_000, "h"),
            ("ms", 60_000, "min"),
            ("ms", 1_000, "s"),
            ("s", 60, "min"),
            ("bytes", 1024**2, "MiB"),
            ("bytes", 1024, "KiB"),
        ):
            if self.unit == unit and self.value and self.value % factor == 0:
                return f"{_grouped(self.value / factor)} {larger}"
        return f"{_grouped(self.value)} {self.unit}".rstrip()


def unit_of(name: str) -> str:
    """The unit that the name of a limit ends with, but for what qualifies it."""
    words = name.split("_")
    for at, word in reversed(list(enumerate(words))):
        unit = _UNITS.get(word) or (word.lower() if _COUNTED.fullmatch(word) else "")
        if unit and "PER" in words[at - 1 : at]:
            return f"{unit_of('_'.join(words[: at - 1]))}/{unit}"
        if unit:
            return unit
    return ""


def limits_in(
    module: str, source: str, known: Mapping[str, float] | None = None
) -> tuple[list[Limit], dict[str, float]]:
    """(the limits of a module, all of its numbers by name). ``known``: numbers that it may
    import.
    """
    body = ast.parse(source).body
    values = dict(known or {})
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, value = node.target.id, _number(node.value, values)
        if value is None:
            continue
        values[name] = value
        text = _text(after)
        if text and (module == _ALL or _IS_LIMIT.search(name)):
            where = module.removeprefix(f"{_PACKAGE}.")
            found.append(Limit(name.strip("_"), value, unit_of(name), where, text))
    return found, values


def limits() -> list[Limit]:
    """All limits of the package, those of ``protocol.limits`` first."""
    root = resources.files(_PACKAGE)
    first = root.joinpath("protocol", "limits.py").read_text(encoding="utf-8")
    found, known = limits_in(_ALL, first)
    for module, source in _sources(root, _PACKAGE):
        if module != _ALL and _MENTIONED.search(source):
            found += limits_in(module, source, known)[0]
    return found


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _sources(each, f"{name}.{each.name}")
        elif each.name.endswith(".py"):
            yield f"{name}.{each.name.removesuffix('.py')}", each.read_text(encoding="utf-8")


def _number(node: ast.expr | None, values: Mapping[str, float]) -> float | None:
    """What a constant expression of numbers comes to; None: it is something else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand, values)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _number(node.left, values), _number(node.right, values)
        if left is not None and right is not None:
            return _OPERATIONS[type(node.op)](left, right)
    return None


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).replace("``", "`").split())
    return ""


def _grouped(value: float) -> str:
    is_long = value != int(value) or abs(value) > _WHOLE_MAX
    return f"{value:g}" if is_long else f"{int(value):,}".replace(",", " ")
