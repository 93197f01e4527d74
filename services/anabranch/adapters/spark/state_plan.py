"""Stateful operators of a query and what they compute, read from Spark's optimised plan
(``protocol.log.stateful_plan``).

The optimised plan decides what is in the state: the optimiser pushes a filter on a key in front of
an aggregate, and drops columns that are not used. Spark's own text of an expression is not used: it
contains ids, and may change with any release. Instead each column is replaced by what it is
computed from, down to the columns of the inputs, so that neither aliases nor the order of
projections count; conditions are sorted; windows are recognised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.adapters.spark.plan_facts import OBSERVED, expressions_of, nodes_of
from anabranch.adapters.spark.python_functions import functions_in
from anabranch.protocol.log.stateful_plan import StatefulOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT_MAX: Final = 400
"""Length of one item, in characters. A column that is made from others of its kind may double in
length at each step.
"""
_MICROS: Final = (
    ("days", 86_400_000_000),
    ("hours", 3_600_000_000),
    ("minutes", 60_000_000),
    ("seconds", 1_000_000),
    ("milliseconds", 1_000),
    ("microseconds", 1),
)
"""Units of a duration, in microseconds."""
_INFIX: Final = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "And": "and",
    "Or": "or",
}
"""Operators that are written between their operands."""
_UNORDERED: Final = frozenset(("Add", "Multiply", "EqualTo", "EqualNullSafe", "And", "Or"))
"""Operators whose operands may be swapped."""
_TRANSPARENT: Final = frozenset(
    ("Alias", "KnownNullable", "KnownNotNull", "PreciseTimestampConversion")
)
"""Expressions with the value of their only operand."""
_NO_MEANING: Final = frozenset(
    (
        "class",
        "num-children",
        "exprId",
        "resultId",
        "nullable",
        "mode",
        "evalContext",
        "timeZoneId",
        "udfDeterministic",
        "mutableAggBufferOffset",
        "inputAggBufferOffset",
        "groupingAttributesLen",
        "hasInitialState",
        "initialState",
        "initGroupingAttrsLen",
    )
)
"""Fields of an expression that do not change its value, or are read on their own."""
_HOLDS_OTHER_EXPRESSIONS: Final = ('"class"', '"exprId"')
"""Text in a field that holds other expressions."""
_STATELESS: Final = frozenset(
    (
        "CollectMetrics",  # of the function itself; that of an input is read before
        "EventTimeWatermark",
        "UpdateEventTimeWatermarkColumn",
        "SubqueryAlias",
        "View",
        "ResolvedHint",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "ReturnAnswer",
    )
)
"""Operators that neither change rows nor columns."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of a plan or of an expression, as Spark's JSON has it."""

    kind: str
    fields: Mapping[str, Any]
    below: tuple[_Node, ...]

    @property
    def ident(self) -> int:
        """Number of the column that an attribute or alias is, in this plan."""
        return int(self.fields["exprId"]["id"])

    def expressions(self, name: str) -> list[_Node]:
        """Return the expressions in the field ``name``, in their order; empty: there are none."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not value:
            return []
        if isinstance(value[0], dict):
            return [_tree(iter(value))] if "class" in value[0] else []
        return [_tree(iter(each)) for each in value if each and isinstance(each[0], dict)]


def _tree(nodes: Iterator[dict[str, Any]]) -> _Node:
    """Build the tree of ``nodes``, which come parents first."""
    fields = next(nodes)
    below = tuple(_tree(nodes) for _ in range(int(fields["num-children"])))
    return _Node(str(fields["class"]).rpartition(".")[2].rstrip("$"), fields, below)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that an operator gives."""

    columns: Mapping[int, str]
    """Description of each column, by number."""
    of: tuple[str, ...]
    """Inputs of the rows, and the conditions under which a row is among them."""
    is_streaming: bool


class _Reader:
    """Describes the operators of one plan that hold state, lowest first."""

    def __init__(self, functions: Callable[[], Mapping[int, str]]) -> None:
        """Prepare the reader. ``functions``: returns the description of each Python function, by
        number of its result.
        """
        self._functions = functions
        self._variables: dict[int, str] = {}
        """Name of each lambda's variable here, by its number."""
        self._depth = 0
        """Number of lambdas around the expression that is being read."""
        self.found: list[StatefulOperator] = []

    def rows(self, node: _Node) -> _Rows:
        """Describe what ``node`` gives, after the operators with state below it."""
        if node.kind == "CollectMetrics" and str(node.fields["name"]).startswith(OBSERVED):
            name = str(node.fields["name"]).removeprefix(OBSERVED)
            columns = {each.ident: f"{name}.{each.fields['name']}" for each in _output(node)}
            return _Rows(columns, (name,), is_streaming=True)
        below = [self.rows(each) for each in node.below]
        if node.kind == "Join":
            return self._join(node, *below)
        if node.kind == "Union":
            return _union(below)
        if not below:
            columns = {each.ident: str(each.fields["name"]) for each in _output(node)}
            of = f"{node.kind}({', '.join(columns.values())})"
            return _Rows(columns, (of,), is_streaming=False)
        return self._unary(node, below[0])

    def _unary(self, node: _Node, rows: _Rows) -> _Rows:
        """Describe the rows of an operator with one input."""
        match node.kind:
            case "Project":
                return _Rows(self._columns(node, "projectList", rows), rows.of, rows.is_streaming)
            case "Filter":
                (condition,) = node.expressions("condition")
                return _Rows(
                    rows.columns, (*rows.of, *self._conditions(condition, rows)), rows.is_streaming
                )
            case "Aggregate":
                return self._aggregate(node, rows)
            case "Expand":
                return self._expand(node, rows)
            case kind if kind in _STATELESS:
                return rows
            case "BatchEvalPython" | "ArrowEvalPython":
                results = node.expressions("resultAttrs")
                made = self._texts(node, "udfs", rows)
                columns = {each.ident: text for each, text in zip(results, made, strict=True)}
                return _Rows({**rows.columns, **columns}, rows.of, rows.is_streaming)
        return self._other(node, rows)

    def _aggregate(self, node: _Node, rows: _Rows) -> _Rows:
        """Describe the rows of an aggregate."""
        computed = dict.fromkeys(
            self._text(function, rows)
            for expression in node.expressions("aggregateExpressions")
            for function in _aggregates(expression)
        )
        keys = self._texts(node, "groupingExpressions", rows)
        columns = self._columns(node, "aggregateExpressions", rows)
        self._hold(rows, "aggregate", per=keys, computes=tuple(computed))
        # What is below an operator with state is in its own description.
        of = () if rows.is_streaming else rows.of
        return _Rows(columns, (*of, f"groups by {_short(', '.join(keys))}"), rows.is_streaming)

    def _expand(self, node: _Node, rows: _Rows) -> _Rows:
        """Describe the rows of an ``Expand``, which gives several for each: for hopping windows, or
        sets of keys.
        """
        projections = [
            [self._text(_tree(iter(each)), rows) for each in projection]
            for projection in node.fields["projections"]
        ]
        columns = {}
        for number, attribute in enumerate(node.expressions("output")):
            made = list(dict.fromkeys(each[number].split(_EARLIER)[0] for each in projections))
            columns[attribute.ident] = _short(" | ".join(made))
        return _Rows(columns, (*rows.of, f"each {len(projections)} times"), rows.is_streaming)

    def _join(self, node: _Node, left: _Rows, right: _Rows) -> _Rows:
        """Describe the rows of a join."""
        kind = node.fields["joinType"]
        name = str(kind.get("object", kind) if isinstance(kind, dict) else kind)
        name = name.rpartition(".")[2].rstrip("$").lower()
        both = _Rows(
            {**left.columns, **right.columns},
            (*left.of, *right.of),
            left.is_streaming or right.is_streaming,
        )
        on = tuple(
            text
            for condition in node.expressions("condition")
            for text in self._conditions(condition, both)
        )
        if left.is_streaming and right.is_streaming:
            self.found.append(
                StatefulOperator(
                    f"{name} join",
                    (
                        ("on", on),
                        ("rows of the left", left.of),
                        ("columns kept of the left", tuple(left.columns.values())),
                        ("rows of the right", right.of),
                        ("columns kept of the right", tuple(right.columns.values())),
                    ),
                )
            )
        columns = left.columns if name in ("leftsemi", "leftanti") else both.columns
        return _Rows(columns, (*both.of, f"{name} join", *on), both.is_streaming)

    def _other(self, node: _Node, rows: _Rows) -> _Rows:
        """Describe the rows of an operator that this module does not know by name, from all its
        fields.
        """
        facts = {
            _ASPECTS.get(name, name): texts
            for name in sorted(node.fields)
            if name not in _GIVEN and (texts := self._texts(node, name, rows))
        }
        if keys := node.fields.get("groupingAttributesLen"):
            facts["per"] = tuple(rows.columns.values())[: int(keys)]
        if said := _parameters(node):
            facts["mode"] = tuple(said)
        given = node.expressions("generatorOutput") or node.expressions("output")
        given = given or node.expressions("outputAttrs")
        columns = {**rows.columns}
        for each in given:
            columns.setdefault(each.ident, f"{node.kind.lower()}.{each.fields['name']}")
        if node.kind.startswith(_STATEFUL):
            self._hold(rows, _words(node.kind), **facts)
            return _Rows(columns, (*rows.of, _words(node.kind)), rows.is_streaming)
        all_of_it = "; ".join(f"{name} {', '.join(texts)}" for name, texts in facts.items())
        of = (*rows.of, _short(f"{_words(node.kind)} {all_of_it}"))
        return _Rows(columns, of, rows.is_streaming)

    def _hold(self, rows: _Rows, kind: str, **facts: tuple[str, ...]) -> None:
        """Add an operator with state, if its rows come from a stream."""
        if rows.is_streaming:
            self.found.append(StatefulOperator(kind, (*facts.items(), ("rows", rows.of))))

    def _columns(self, node: _Node, name: str, rows: _Rows) -> dict[int, str]:
        """Describe the columns in the field ``name``, by number."""
        return {each.ident: self._text(each, rows) for each in node.expressions(name)}

    def _texts(self, node: _Node, name: str, rows: _Rows) -> tuple[str, ...]:
        """Describe the expressions in the field ``name``."""
        return tuple(self._text(each, rows) for each in node.expressions(name))

    def _conditions(self, condition: _Node, rows: _Rows) -> tuple[str, ...]:
        """Describe the parts of a conjunction, sorted."""
        return tuple(sorted({self._text(each, rows) for each in _conjuncts(condition)}))

    def _text(self, node: _Node, rows: _Rows) -> str:
        """Describe an expression in at most _TEXT_MAX characters."""
        return _short(self._whole_text(node, rows))

    def _whole_text(self, node: _Node, rows: _Rows) -> str:
        """Describe an expression."""
        if node.kind in ("AttributeReference", "NamedLambdaVariable"):
            known = rows.columns if node.kind == "AttributeReference" else self._variables
            return known.get(node.ident, str(node.fields["name"]))
        if node.kind in ("Literal", "LambdaFunction"):
            return _literal(node) if node.kind == "Literal" else self._lambda(node, rows)
        below = [self._text(each, rows) for each in node.below]
        if node.kind in _TRANSPARENT and below:
            return below[0]
        if node.kind == "CreateNamedStruct" and (window := self._window(node, rows)):
            return window
        if node.kind == "AggregateExpression":
            distinct = " distinct" if node.fields.get("isDistinct") else ""
            where = f" where {below[1]}" if len(below) > 1 else ""
            return f"{below[0]}{distinct}{where}"
        if node.kind in _INFIX and len(below) == 2:
            ordered = sorted(below) if node.kind in _UNORDERED else below
            return f"({ordered[0]} {_INFIX[node.kind]} {ordered[1]})"
        if node.kind == "PythonUDF":
            made_by = self._functions().get(int(node.fields["resultId"]["id"]), "")
            return f"{made_by or node.fields['name']}({', '.join(below)})"
        said = _parameters(node)
        if isinstance(node.fields.get("plan"), list):
            subquery = self.rows(_tree(iter(node.fields["plan"])))
            said += [*subquery.columns.values(), *subquery.of]
        return f"{_NAMES.get(node.kind, node.kind.lower())}({', '.join([*below, *said])})"

    def _lambda(self, node: _Node, rows: _Rows) -> str:
        """Return a lambda whose variables are named by their places: Spark numbers those of the
        DataFrame API anew each time, and the names of others mean nothing.
        """
        body, *variables = node.below
        for place, each in enumerate(variables):
            self._variables[each.ident] = f"x{self._depth}{place}"
        self._depth += 1
        text = self._text(body, rows)
        self._depth -= 1
        return f"({', '.join(self._variables[each.ident] for each in variables)} -> {text})"

    def _window(self, node: _Node, rows: _Rows) -> str:
        """Return a window as users write it; empty: the struct is not one."""
        if [_literal(each) for each in node.below[::2]] != ["'start'", "'end'"]:
            return ""
        start, end = _unwrapped(node.below[1]), _unwrapped(node.below[3])
        if _is_time_add(end) and self._text(end.below[0], rows) == self._text(start, rows):
            return f"session_window({self._text(start, rows)}, {self._text(end.below[1], rows)})"
        remainder = next((each for each in _all(start) if each.kind == "Remainder"), None)
        if (
            end.kind != "Add"
            or remainder is None
            or start.kind != "Subtract"
            or self._text(end.below[0], rows) != self._text(start, rows)
        ):
            return ""
        time, offset = (self._text(each, rows) for each in remainder.below[0].below)
        slide, length = _micros(remainder.below[1]), _micros(end.below[1])
        earlier = _micros(start.below[1])
        words = [time, _duration(length)]
        words += [_duration(slide)] if slide != length or offset != "0" else []
        words += [_duration(int(offset))] if offset != "0" else []
        return f"window({', '.join(words)})" + (
            f"{_EARLIER}{_duration(earlier)} earlier" if earlier else ""
        )


_EARLIER: Final = " - "
"""Separator before the offset of a hopping window's earlier windows."""
_GIVEN: Final = frozenset(("generatorOutput", "output", "outputAttrs"))
"""Fields with the columns that an operator gives, which have new numbers in each plan."""
_STATEFUL: Final = (
    "Deduplicate",
    "TransformWithState",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "GlobalLimit",
)
"""Operators with state besides aggregates and joins, by the beginning of their name."""
_NAMES: Final = {"Average": "avg", "CreateNamedStruct": "struct"}
"""Names of functions as users write them."""
_ASPECTS: Final = {"keys": "by", "functionExpr": "computes", "groupingAttributes": "per"}
"""Names of fields as people read them."""


def _output(node: _Node) -> list[_Node]:
    """Return the attributes or aliases that a node gives, those of the next node below that names
    its own.
    """
    for name in ("projectList", "output"):
        if found := node.expressions(name):
            return found
    return _output(node.below[0]) if node.below else []


def _union(below: list[_Rows]) -> _Rows:
    """Describe the rows of a union."""
    made = zip(*(each.columns.values() for each in below), strict=False)
    columns = {
        number: _short(" | ".join(dict.fromkeys(texts)))
        for number, texts in zip(below[0].columns, made, strict=False)
    }
    of = tuple(_short(f"rows of {', '.join(each.of)}") for each in below)
    return _Rows(columns, of, any(each.is_streaming for each in below))


def _aggregates(expression: _Node) -> Iterator[_Node]:
    """Yield the aggregate functions in ``expression``."""
    if expression.kind == "AggregateExpression":
        yield expression
        return
    for each in expression.below:
        yield from _aggregates(each)


def _conjuncts(condition: _Node) -> Iterator[_Node]:
    """Yield the parts of a conjunction."""
    if condition.kind != "And":
        yield condition
        return
    for each in condition.below:
        yield from _conjuncts(each)


def _all(node: _Node) -> Iterator[_Node]:
    """Yield ``node`` and all nodes below it."""
    yield node
    for each in node.below:
        yield from _all(each)


def _unwrapped(node: _Node) -> _Node:
    """Return the first node from ``node`` down that is not transparent."""
    while node.kind in _TRANSPARENT:
        node = node.below[0]
    return node


def _is_time_add(node: _Node) -> bool:
    """Return whether ``node`` adds an interval to a time."""
    return node.kind in ("TimeAdd", "TimestampAddInterval")


def _parameters(node: _Node) -> list[str]:
    """Return what an expression says besides the expressions below it: the type of a cast, the
    number of a field. Spark names each of those below once, by its number.
    """
    left = set(range(len(node.below)))
    said: list[str] = []
    for name, value in node.fields.items():
        if name in _NO_MEANING or value is None or value in ([], {}):
            continue
        numbers = [value] if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(numbers, list) and all(
            isinstance(each, int) and each in left for each in numbers
        ):
            left.difference_update(numbers)
        elif text := _parameter(value):
            said.append(f"{name} {text}")
    return said


def _parameter(value: Any) -> str:
    """Return the value of a field; empty: it holds other expressions, which are read elsewhere."""
    if isinstance(value, dict) and "object" in value:  # one of several Scala objects
        return str(value["object"]).replace("$", ".").strip(".").rpartition(".")[2]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return "" if any(each in text for each in _HOLDS_OTHER_EXPRESSIONS) else text


def _literal(node: _Node) -> str:
    """Return a constant as SQL; empty for other expressions."""
    if node.kind != "Literal":
        return ""
    value, of = node.fields.get("value"), str(node.fields.get("dataType"))
    if of == "string":
        return f"'{value}'"
    if "interval" in of and str(value).lstrip("-").isdecimal() and "month" not in of:
        return _duration(int(str(value)))
    return str(value)


def _micros(node: _Node) -> int:
    """Return the value of a constant interval, in microseconds."""
    return int(str(node.fields["value"]))


def _duration(micros: int) -> str:
    """Return a duration as users write it."""
    for name, length in _MICROS:
        if micros % length == 0:
            count = micros // length
            return f"{count} {name.removesuffix('s') if count == 1 else name}"
    raise AssertionError  # one microsecond divides all


def _words(kind: str) -> str:
    """Return the name of an operator as people read it: ``deduplicate within watermark``."""
    return "".join(f" {each.lower()}" if each.isupper() else each for each in kind).strip()


def _short(text: str) -> str:
    """Return ``text``, or its beginning and a digest if it is longer than _TEXT_MAX."""
    if len(text) <= _TEXT_MAX:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text[: _TEXT_MAX - 30]}... ({digest})"


def _name_sets(value: object, sets: Iterator[str]) -> None:
    """Add to each ``InSet`` within ``value``, which is Spark's JSON, its text of ``sets``: the JSON
    leaves its values out. Both have them in the same order.
    """
    if isinstance(value, dict):
        if str(value.get("class")).endswith(".InSet"):
            value["values"] = next(sets, "")
        for name, each in value.items():
            if name != "plan":  # the plan of a subquery, whose values ``sets`` does not have
                _name_sets(each, sets)
    elif isinstance(value, list):
        for each in value:
            _name_sets(each, sets)


def _sets_in(plan: Any) -> Iterator[str]:
    """Yield the values of each ``InSet`` in ``plan``, as SQL."""
    for node in nodes_of(plan):
        for expression in expressions_of(node):
            for each, name in expression:
                if name == "InSet":
                    yield str(each.sql())[len(str(each.child().sql())) :]


_UNKNOWN_STRUCTURE: Final = (
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions raised while reading a plan whose structure this module does not know."""


def stateful_operators(frame: DataFrame) -> tuple[StatefulOperator, ...] | None:
    """Return the operators of ``frame`` that hold state, those nearest to the inputs first; None if
    Spark describes one in a form that this module does not know.

    Args:
        frame: The result of the stage's function, whose inputs have ``observe(OBSERVED + name)``;
            it is analysed, not run.
    """
    session = frame.sparkSession._jsparkSession  # noqa: SLF001 - the only way to the plan
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    plan = session.sessionState().optimizer().execute(analysed)
    reader, nodes = _Reader(lambda: functions_in(plan)), json.loads(plan.toJSON())
    _name_sets(nodes, _sets_in(plan))
    try:
        reader.rows(_tree(iter(nodes)))
    except _UNKNOWN_STRUCTURE:
        return None
    return tuple(reader.found)
