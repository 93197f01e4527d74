"""Reads from Spark what a query consists of. What it means is decided in ``protocol.plans``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from anabranch import stateful
from anabranch.protocol.plans import PlanFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED: Final = "anabranch_"
_NUMBERED: Final = re.compile(r"#[0-9]+")
_INEXACT: Final = frozenset({"float", "double"})
_SUMS: Final = frozenset({"Sum", "Average", "Avg", "StddevSamp", "VarianceSamp"})


def _items(sequence: Any) -> Iterator[Any]:
    for i in range(sequence.size()):
        yield sequence.apply(i)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName()).rstrip("$")


def read_facts(frame: DataFrame, inputs: list[str], processors_known: int) -> PlanFacts:
    """What ``frame``, the result of the user's function, consists of.

    Args:
        frame: A streaming DataFrame; it is analysed, not run.
        inputs: Names of the inputs; each was given ``observe(OBSERVED + name)``.
        processors_known: How many of its transformWithState operators were made by ``anabranch.stateful``.
    """
    operators, expressions, aggregates, joins = set(), set(), set(), set()
    inexact, deduplicated, observed, processors = [], [], set(), 0
    for node in _nodes(frame._jdf.queryExecution().analyzed()):  # noqa: SLF001 - the only way to the plan
        name = _name(node)
        if name.startswith("TransformWithState"):
            processors += 1
            name = "TransformWithState"
        operators.add(name)
        if name == "CollectMetrics":
            observed.add(str(node.name()).removeprefix(OBSERVED))
        if name == "Join":
            joins.add(_name(node.joinType()))
        if name == "Deduplicate":
            keys = {str(key.exprId().id()) for key in _items(node.keys())}
            missing = {str(a.exprId().id()) for a in _items(node.child().output())} - keys
            if missing:
                deduplicated += [str(key.name()) for key in _items(node.keys())]
        for expression in _items(node.expressions()):
            for inner in _nodes(expression):
                expressions.add(_name(inner))
                if _name(inner) == "AggregateExpression":
                    function = inner.aggregateFunction()
                    aggregates.add(_name(function))
                    if _name(function) in _SUMS and any(str(c.dataType().typeName()) in _INEXACT for c in _items(function.children())):
                        inexact.append(str(inner.toString())[:80])
    safe = min(processors, processors_known)
    return PlanFacts(
        operators=frozenset(operators), expressions=frozenset(expressions), aggregates=frozenset(aggregates), inexact_sums=tuple(inexact),
        join_types=frozenset(joins), deduplicated=tuple(deduplicated), inputs_unused=tuple(n for n in inputs if n not in observed),
        stateful_processors=frozenset(f"transformWithState {i}" for i in range(processors)),
        batch_safe_processors=frozenset(f"transformWithState {i}" for i in range(processors if safe == processors else 0)),
    )  # fmt: skip


def used_columns(frame: DataFrame, name: str) -> list[str]:
    """Columns of input ``name`` that the optimised query reads, ``stime`` left out.

    The optimiser prunes below ``observe``: what is left there is what is read. Where it did not prune, nothing is left out.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    plan = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(analysed)  # noqa: SLF001 - not run: only to see what is read
    used: dict[str, None] = {}
    for node in _nodes(plan):
        if _name(node) == "CollectMetrics" and str(node.name()) == OBSERVED + name:
            used |= {str(attribute.name()): None for attribute in _items(node.output())}
    return [column for column in used if column != "stime"]


def shape_of(frame: DataFrame) -> list[str]:
    """What the optimised query does with its inputs, in words that do not depend on the numbers that Spark gave to the columns.

    Two queries of the same shape do the same with their inputs, whatever unused columns these have.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    plan = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(analysed)  # noqa: SLF001
    numbers: dict[str, str] = {}

    def words(node: Any) -> Iterator[str]:
        if _name(node) == "CollectMetrics":
            yield f"input {node.name()}: {sorted(str(attribute.name()) for attribute in _items(node.output()))}"
            return
        yield " ".join([_name(node), *(str(expression.toString()) for expression in _items(node.expressions()))])
        for child in _items(node.children()):
            yield from words(child)

    return [_NUMBERED.sub(lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"), line) for line in words(plan)]


def processors_used() -> int:
    """How many processors ``anabranch.stateful`` has put into queries since the last call."""
    return stateful.take_uses()
