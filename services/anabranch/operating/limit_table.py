"""``anabranch limits``: a table of all limits of the package, read from its source files.

A limit is a numeric constant at the top of a module with a docstring under it that says what the
number bounds and what goes wrong beyond it. A constant that bounds nothing has a comment instead.
The sources are parsed and not imported, so that the table is complete at the cost of no imports,
and always holds the values in force.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_PACKAGE: Final = "anabranch"
_SHARED: Final = "anabranch.protocol.limits"
"""Module of the limits that several modules share."""
_MENTIONED: Final = re.compile(r'^_?[A-Z0-9_]+: Final = [^"]*\n"""', re.MULTILINE)
"""Sign of a constant with a docstring. A source without one is not parsed, which saves time."""
_UNITS: Final = {"MS": "ms", "S": "s", "SECONDS": "s", "MIB": "MiB", "MICRO": "micro-units"}
_COUNTED: Final = re.compile(
    "AGES|ALARMS|ANSWERS|ASKS|BATCHES|BLOCKS|BOUNDARIES|BRACKETS|BROKERS|BUCKETS|BYTES|CELLS"
    "|CHANGES|CHARACTERS|CLIENTS|COMMITMENTS|CONTRACTS|CORES|DISPUTES|ENDS|FETCHES|FIELDS"
    "|FIGURES|FINDINGS|GENERATIONS|HEARTBEATS|HOPS|IDS|INPUTS|ITEMS|KEYS|LINES|LOGINS|LOOKS|MANIFESTS"
    "|MESSAGES|PARAMETERS|PARTITIONS|PARTS|PAUSES|PIECES|PIPELINES|POLLS|POSITIONS|PROPOSALS"
    "|QUERIES|RANGES|RECORDS|REPLICAS|ROWS|SAMPLES|SENDINGS|SHARDS|SLOTS|STEPS|STREAMS|TASKS|TERMS"
    "|TIERS|TIMELINES|TIMES|TRIES|UNITS|VALUES|VOTERS|WAITS|WRITERS"
)
"""Words of a name that are the unit of a count."""
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
    """One limit of the table."""

    name: str
    value: float
    unit: str
    """Unit of the value; empty: a plain number."""
    module: str
    """Module that defines it; ``protocol.limits`` if several modules share it."""
    text: str
    """Docstring of the constant."""

    def shown(self) -> str:
        """Return the value with the largest unit that divides it, for people."""
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
    """Return the unit that the name of a limit states in its last words, such as ``ms`` of
    ``WAIT_MS_MAX`` and ``bytes/s`` of ``BYTES_PER_S``; empty: it states none.
    """
    words = name.split("_")
    for at, word in reversed(list(enumerate(words))):
        unit = _UNITS.get(word) or (word.lower() if _COUNTED.fullmatch(word) else "")
        if unit and "PER" in words[at - 1 : at]:
            return f"{unit_of('_'.join(words[: at - 1]))}/{unit}"
        if unit:
            return unit
    return ""


def limits_in(
    module: str, source: str, numbers_of: Callable[[str], Mapping[str, float]] = lambda _: {}
) -> tuple[list[Limit], dict[str, float]]:
    """Return the limits of a module, and the values of all of its numeric constants by name.

    Args:
        module: Dotted name of the module.
        source: Text of the module.
        numbers_of: Function that returns the numeric constants of a module from which this one
            imports some.
    """
    body = ast.parse(source).body
    values: dict[str, float] = {}
    found = []
    for node, after in pairwise([*body, None]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            values |= _imported(node, numbers_of)
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, value = node.target.id, _number(node.value, values)
        if value is None:
            continue
        values[name] = value
        text = _text(after)
        if text:
            where = module.removeprefix(f"{_PACKAGE}.")
            found.append(Limit(name.strip("_"), value, unit_of(name), where, text))
    return found, values


@functools.cache
def limits() -> tuple[Limit, ...]:
    """Return all limits of the package, those of ``protocol.limits`` first."""
    sources = dict(_sources(resources.files(_PACKAGE), _PACKAGE))

    @functools.cache
    def numbers_of(module: str) -> Mapping[str, float]:
        return limits_in(module, sources.get(module, ""), numbers_of)[1]

    return tuple(
        limit
        for module in sorted(sources, key=lambda module: (module != _SHARED, module))
        if _MENTIONED.search(sources[module])
        for limit in limits_in(module, sources[module], numbers_of)[0]
    )


def _imported(
    node: ast.ImportFrom, numbers_of: Callable[[str], Mapping[str, float]]
) -> dict[str, float]:
    """Return the numeric constants that an import statement imports.

    A module from which no upper-case name is imported is not parsed.
    """
    named = {each.asname or each.name: each.name for each in node.names if each.name.isupper()}
    known = numbers_of(node.module or "") if named else {}
    return {name: known[of] for name, of in named.items() if of in known}


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of each module in ``folder``, the package ``name``."""
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _sources(each, f"{name}.{each.name}")
        elif each.name.endswith(".py"):
            yield f"{name}.{each.name.removesuffix('.py')}", each.read_text(encoding="utf-8")


def _number(node: ast.expr | None, values: Mapping[str, float]) -> float | None:
    """Return the value of a constant numeric expression; None: it is something else."""
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
    """Return the docstring that ``node`` is, in one line; empty: it is none."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).replace("``", "`").split())
    return ""


def _grouped(value: float) -> str:
    """Return ``value`` with spaces between thousands."""
    is_long = value != int(value) or abs(value) > _WHOLE_MAX
    return f"{value:g}" if is_long else f"{int(value):,}".replace(",", " ")
