"""Facts about a query, read from Spark's analysed plan. ``protocol.stage.planner`` decides what
they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of

from anabranch import stateful
from anabranch.adapters.spark.known_names import SPARK
from anabranch.protocol.stage.planner import PlanFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED: Final = "anabranch_"
"""Prefix of the ``observe`` name that marks an input in the plan."""
_NUMBERED: Final = re.compile(r"#[0-9]+")
"""Pattern of the number that Spark gives to a column."""
_ARGUMENT: Final = re.compile(r"lambda \w+#")
"""An argument of a lambda function. PySpark numbers them anew whenever a function is called."""
_INEXACT: Final = {
    "Sum": frozenset({"float", "double"}),
    "Average": frozenset({"float", "double", "long", "integer"}),
}
"""Types that an aggregate adds inexactly. Spark adds up an average of integers as doubles. Of BYTE
and SHORT no group is so large that this is inexact, since 2**53 is 2**38 times the largest SHORT;
of INT some millions of rows are enough.
"""
_NEVER_OVERFLOW: Final = frozenset({"byte", "short", "integer"})
"""Types whose sum fits its result whatever the number of rows."""
_TIED: Final = frozenset({"Min", "Max"})
"""Aggregates that keep one of several equal values."""
_COLLATED: Final = re.compile(r"\bCOLLATE\b")
"""Types, as SQL, with texts that are equal and yet differ."""
_FLOATING: Final = re.compile(r"\b(FLOAT|DOUBLE)\b")
"""Types, as SQL, with 0.0 and -0.0, which are equal and yet differ."""
_ONE_ZERO: Final = re.compile("TINYINT|SMALLINT|INT|BIGINT|DECIMAL|BOOLEAN|TIMESTAMP")
"""Types, as SQL, whose zero has no sign."""
_PASS_ON: Final = frozenset(
    {"Alias", "AggregateExpression", "Min", "Max", "Coalesce", "CreateNamedStruct"}
)
"""Expressions that give a negative zero only where one of their children does."""
_ORDERLESS: Final = frozenset({"SortArray", "Size"})
"""Expressions that give the same for a set in any order."""
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Types of times."""
_TO_TIMES: Final = frozenset({"Cast", "ParseToDate", "ParseToTimestamp"})
"""Expressions that turn text into a time."""
_CLOCK: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Text that Spark takes for a time that it reads from the clock."""
_CLOCK_LITERAL: Final = re.compile(r"\w+\s*r?['\"]" + _CLOCK.pattern, re.IGNORECASE)
_PLAN_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
"""Class of expressions that hold a plan: subqueries of all kinds."""


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    for i in range(sequence.size()):
        yield sequence.apply(i)


def nodes_of(plan: Any) -> Iterator[Any]:
    """Yield ``plan`` and all plans below it."""
    yield plan
    for child in _items(plan.children()):
        yield from nodes_of(child)


def _all_nodes(plans: list[Any]) -> Iterator[Any]:
    """Yield the nodes of ``plans``, and of plans that the caller appends meanwhile."""
    while plans:
        yield from nodes_of(plans.pop())


def _is_session(grouping: Any) -> bool:
    """Return whether an expression that rows are grouped by is a window of ``session_window``:
    Spark has replaced the function by then, and left a mark.
    """
    return _name(grouping) in {"AttributeReference", "Alias"} and bool(
        grouping.metadata().contains("spark.sessionWindow")
    )


def _name(node: Any) -> str:
    """Return the name of the class of ``node``: without the package, if it is one of Spark's."""
    whole = str(node.getClass().getName())
    if not whole.startswith("org.apache.spark."):
        return whole
    return whole.rstrip("$").replace("$", ".").rpartition(".")[2]


def _named(expression: Any, parent: str = "") -> Iterator[tuple[Any, str, str, bool]]:
    """Yield (node, its name, that of the node above it, whether it has children) of ``expression``
    and all below it. A question to Java takes time, so each is asked once.
    """
    name, children = _name(expression), list(_items(expression.children()))
    yield expression, name, parent, bool(children)
    for child in children:
        yield from _named(child, name)


def expressions_of(node: Any) -> Iterator[Iterator[tuple[Any, str]]]:
    """Yield, for each expression of the plan ``node``, (expression, its name) of all in it."""
    for expression in _items(node.expressions()):
        yield ((inner, name) for inner, name, *_ in _named(expression))


def _is_random(expression: Any) -> bool:
    """Return whether the expression itself is not deterministic, and not only what it is
    made from.
    """
    return not expression.deterministic() and all(
        child.deterministic() for child in _items(expression.children())
    )


def _foldable_text(expression: Any) -> str | None:
    """Return the text of a constant expression; None where it is not constant or not text."""
    if not expression.foldable() or str(expression.dataType().typeName()) != "string":
        return None
    value = expression.eval(None)
    return None if value is None else str(value.toString())


def _source(expression: Any) -> str:
    """Return the SQL text that ``expression`` was parsed from; empty where it was not."""
    origin = expression.origin()
    parts = (origin.sqlText(), origin.startIndex(), origin.stopIndex())
    if not all(part.isDefined() for part in parts):
        return ""
    text, start, stop = (part.get() for part in parts)
    return str(text)[int(start) : int(stop) + 1]


def _clock_text(expression: Any, kind: str) -> str | None:
    """Return the text of an expression for which Spark reads the clock, at execution or already
    when it parsed the query; None for any other expression.
    """
    if kind == "Literal":
        if str(expression.dataType().typeName()) in _TIMES:
            source = _source(expression)
            return source if _CLOCK_LITERAL.match(source) else None
    elif kind in _TO_TIMES and str(expression.dataType().typeName()) in _TIMES:
        text = _foldable_text(expression.children().apply(0))
        if text is not None and _CLOCK.match(text):
            return f"the time {text!r}"
    return None


def _draws_a_vector(aes_encrypt: Any) -> bool:
    """Return whether ``aes_encrypt`` may draw a random initialisation vector."""
    _, _, mode, _, vector, *_ = _items(aes_encrypt.children())
    if (_foldable_text(mode) or "").upper() == "ECB":  # has none
        return False
    return not (vector.foldable() and len(vector.eval(None) or b""))


class _Zeros:
    """Columns and expressions of a plan that may yield a negative zero. The columns of a stage's
    inputs have none (``adapters.spark.reading``).
    """

    def __init__(self, plan: Any) -> None:
        self._inputs: set[int] = set()
        """Columns of inputs, by their numbers in the plan."""
        self._made: dict[int, Any] = {}
        """Expression that gives a column, by the column's number."""
        self._joined: dict[int, list[Any]] = {}
        """Columns of a union's other parts, by the number of the union's column, which is that of
        its first part.
        """
        for node in nodes_of(plan):
            kind = _name(node)
            if kind == "StreamingRelationV2":
                self._inputs |= {_number(column) for column in _items(node.output())}
            for expression in _items(node.expressions()):
                if _name(expression) == "Alias":
                    self._made[_number(expression)] = expression.child()
            if kind == "Union":
                columns = list(_items(node.output()))
                for part in list(_items(node.children()))[1:]:
                    for column, other in zip(columns, _items(part.output()), strict=True):
                        self._joined.setdefault(_number(column), []).append(other)

    def may_be_negative(self, expression: Any, seen: frozenset[int] = frozenset()) -> bool:
        """Return whether ``expression`` may give -0.0, or hold it. ``seen``: columns that are
        being followed.
        """
        kind, text = _name(expression), str(expression.dataType().sql())
        children = list(_items(expression.children()))
        if not _FLOATING.search(text):
            return False
        if kind == "AttributeReference":
            return self._column_may(expression, text, seen)
        if kind == "Literal":
            return str(expression.value()) == "-0.0" or not _FLOATING.fullmatch(text)
        if kind == "Add":  # x + 0.0 is 0.0 for both zeros
            return all(self.may_be_negative(child, seen) for child in children)
        if kind == "Cast" and not _FLOATING.search(str(children[0].dataType().sql())):
            return not _ONE_ZERO.match(str(children[0].dataType().sql()))
        if kind in _PASS_ON or kind == "Cast":
            return any(self.may_be_negative(child, seen) for child in children)
        return kind != "Abs"

    def _column_may(self, column: Any, type_text: str, seen: frozenset[int]) -> bool:
        """Return whether ``column`` may hold -0.0."""
        number = _number(column)
        if number in seen:  # a part of the union that is being followed
            return False
        if number in self._made:
            given = [self._made[number]]
        elif number in self._inputs and _FLOATING.fullmatch(type_text):
            given = []
        else:
            return True
        given += self._joined.get(number, [])
        return any(self.may_be_negative(each, seen | {number}) for each in given)


def _number(column: Any) -> int:
    """Return the number that Spark gave to ``column``."""
    return int(column.exprId().id())


@dataclass(slots=True)
class _Expressions:
    """Facts about the expressions of a plan; most fields are those of ``PlanFacts``."""

    plan: Any
    """The whole plan, without those within its expressions."""
    gateway: Any
    plans: list[Any] = field(default_factory=list)
    """Plans within the expressions, which are still to be read."""
    have_plans: dict[str, bool] = field(default_factory=dict)
    """Whether an expression's class holds a plan, by the class's name."""
    zeros: _Zeros | None = None
    """Sign of zeros in the plan; None until an aggregate needs it."""
    zeros_shown: list[str] = field(default_factory=list)
    ties: list[str] = field(default_factory=list)
    overflows: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    childless: set[str] = field(default_factory=set)
    random: set[str] = field(default_factory=set)
    aggregates: set[str] = field(default_factory=set)
    inexact: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def read(self, expression: Any) -> None:
        """Record the facts of ``expression`` and of all expressions below it."""
        for inner, kind, parent, has_children in _named(expression):
            self.names.add(kind)
            if self._has_plan(inner, kind):
                self.plans.append(inner.plan())  # it is read for itself, whatever makes it random
            elif kind not in self.aggregates:  # one comes after the expression that holds it
                if not has_children:
                    self.childless.add(kind)
                if _is_random(inner):
                    self.random.add(str(inner.name()) if kind == "PythonUDF" else kind)
            if kind == "AggregateExpression":
                self._read_aggregate(inner, parent)
            elif kind == "AesEncrypt" and _draws_a_vector(inner):
                self.random.add("aes_encrypt without an initialisation vector of yours")
            elif clock := _clock_text(inner, kind):
                self.random.add(clock)

    def _has_plan(self, expression: Any, kind: str) -> bool:
        """Return whether ``expression`` is a subquery of any kind; a class is asked once."""
        if kind not in self.have_plans:
            self.have_plans[kind] = is_instance_of(self.gateway, expression, _PLAN_EXPRESSION)
        return self.have_plans[kind]

    def _read_aggregate(self, expression: Any, parent: str) -> None:
        """Record the facts of an aggregate. ``parent``: name of the expression above it."""
        function = expression.aggregateFunction()
        name = _name(function)
        self.aggregates.add(name)
        children = list(_items(function.children()))
        types = {str(child.dataType().typeName()) for child in children}
        text = str(function.toString())[:80]
        if types & _INEXACT.get(name, frozenset()):
            self.inexact.append(str(expression.toString())[:80])
        if str(function.prettyName()).startswith("try_") and types - _NEVER_OVERFLOW:
            self.overflows.append(text)
        if name in _TIED or (name == "CollectSet" and parent == "SortArray"):
            self._read_ties(text, children)
        if name == "CollectSet" and parent not in _ORDERLESS:
            self.shown.append(str(expression.sql())[:80])

    def _read_ties(self, text: str, children: list[Any]) -> None:
        """Record whether the aggregate ``text`` shows one of several equal values of ``children``
        that differ: texts with a collation, or zeros of either sign.
        """
        types = [str(child.dataType().sql()) for child in children]
        if any(map(_COLLATED.search, types)):
            self.ties.append(text)
        if any(map(_FLOATING.search, types)):
            self.zeros = self.zeros or _Zeros(self.plan)
            if any(map(self.zeros.may_be_negative, children)):
                self.zeros_shown.append(text)


def _inlined(frame: DataFrame) -> Any:
    """Return the analysed plan of ``frame`` with each name of a WITH clause replaced by its query,
    as Spark's optimiser does before it runs the plan. A name that is used twice is there twice, and
    one that is not used is gone.

    The optimiser leaves names of queries with results that are not fixed, which ``judge`` rejects,
    and recursive ones, which stay here, too.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the only way to the plan
    spark = frame.sparkSession._jvm.org.apache.spark.sql  # noqa: SLF001
    always, keep_unused, is_analysis = True, False, False
    inline = spark.catalyst.optimizer.InlineCTE(always, keep_unused, is_analysis)
    return inline.apply(analysed)


def check_operations(frame: DataFrame) -> None:
    """Let Spark check that it can run the operators of ``frame`` on a stream, as it does when a
    query starts.

    Raises:
        AnalysisException: it cannot.
    """
    spark = frame.sparkSession._jvm.org.apache.spark.sql  # noqa: SLF001 - no Python API has it
    spark.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
        frame._jdf.queryExecution().analyzed(),  # noqa: SLF001
        spark.streaming.OutputMode.Append(),
    )


def read_facts(frame: DataFrame, inputs: list[str], processors_known: int) -> PlanFacts:
    """Collect the facts about ``frame``, the result of the user's function.

    Args:
        frame: A streaming DataFrame; it is analysed, not run.
        inputs: Names of the inputs; each was given ``observe(OBSERVED + name)``.
        processors_known: Number of its transformWithState operators that ``anabranch.stateful``
            created.
    """
    operators = set()
    joins = set()
    analysed = _inlined(frame)
    found = _Expressions(analysed, frame.sparkSession.sparkContext._gateway)  # noqa: SLF001
    generators = set()
    deduplicated = []
    observed = set()
    processors = 0
    found.plans.append(analysed)
    for node in _all_nodes(found.plans):
        name = _name(node)
        if name.startswith("TransformWithState"):
            processors += 1
            name = "TransformWithState"
        operators.add(name)
        if name == "CollectMetrics":
            observed.add(str(node.name()).removeprefix(OBSERVED))
        if name == "Aggregate" and any(map(_is_session, _items(node.groupingExpressions()))):
            operators.add("SessionWindow")
        if name == "Generate":
            generators.add(_name(node.generator()))
        if name == "Join":
            joins.add(_name(node.joinType()))
        if name == "Deduplicate":
            keys = {str(key.exprId().id()) for key in _items(node.keys())}
            missing = {str(a.exprId().id()) for a in _items(node.child().output())} - keys
            if missing:
                deduplicated += [str(key.name()) for key in _items(node.keys())]
        for expression in _items(node.expressions()):
            found.read(expression)
    safe = min(processors, processors_known)
    return PlanFacts(
        operators=frozenset(operators),
        expressions=frozenset(found.names),
        childless=frozenset(found.childless),
        generators=frozenset(generators),
        not_deterministic=frozenset(found.random),
        aggregates=frozenset(found.aggregates),
        inexact_sums=tuple(found.inexact),
        sets_shown=tuple(found.shown),
        ties_shown=tuple(found.ties),
        zeros_shown=tuple(found.zeros_shown),
        overflowing=tuple(found.overflows),
        join_types=frozenset(joins),
        deduplicated=tuple(deduplicated),
        late_operators=late_operators(frame),
        inputs_unused=tuple(n for n in inputs if n not in observed),
        stateful_processors=frozenset(f"transformWithState {i}" for i in range(processors)),
        batch_safe_processors=frozenset(
            f"transformWithState {i}" for i in range(processors if safe == processors else 0)
        ),
    )


_FAR_MS: Final = 1 << 50
"""Watermark with which a join is asked how long it keeps rows, in ms. Far from 0, where Spark
would cut a bound off.
"""
_FREE_OF_TIME: Final = frozenset({"Deduplicate", "Join"})
"""Stateful operators that give a row when it, or the row it matches, is read, and none later. Outer
joins are not among these joins.
"""
_MATCHED: Final = frozenset({"Inner", "Cross", "LeftSemi"})


def _held_ms(join: Any, jvm: Any) -> int:
    """Return how long Spark keeps rows of ``join`` for matches, in ms of event time. The watermark
    of the operators that follow is behind by as much (``StreamingSymmetricHashJoinExec``). 0 for a
    join without a bound, behind which the watermark stays as it is.
    """
    found = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join)
    if found.isEmpty():
        return 0
    keys = found.get()
    stateful = jvm.org.apache.spark.sql.execution.streaming.operators.stateful
    sides = stateful.join.StreamingSymmetricHashJoinHelper.getStateWatermark(
        join.left().output(),
        join.right().output(),
        keys._2(),  # noqa: SLF001 - the fields of Scala's tuples are called so
        keys._3(),  # noqa: SLF001
        join.condition(),
        jvm.scala.Option.apply(_FAR_MS),
        False,
    )
    kept = [
        int(side.get())
        for side in (sides.productElement(0), sides.productElement(1))
        if side.isDefined()
    ]
    return max(0, *(_FAR_MS - watermark_ms for watermark_ms in kept)) if kept else 0


def _delays_ms(node: Any, jvm: Any, late: dict[str, int]) -> int:
    """Return by how much the watermark behind ``node`` is behind that of the batch, in ms, and note
    in ``late`` the operators whose results are by as much too late for their bucket.
    """
    delay_ms = max((_delays_ms(child, jvm, late) for child in _items(node.children())), default=0)
    name = _name(node)
    if not node.isStreaming() or not (delay_ms or name == "Join"):
        return delay_ms
    is_join = name == "Join" and all(child.isStreaming() for child in _items(node.children()))
    is_matched = name != "Join" or _name(node.joinType()) in _MATCHED
    if delay_ms and name not in SPARK.stateless and not (name in _FREE_OF_TIME and is_matched):
        late[name] = max(delay_ms, late.get(name, 0))
    return delay_ms + _held_ms(node, jvm) if is_join else delay_ms


def late_operators(frame: DataFrame) -> tuple[tuple[str, int], ...]:
    """Return (operator, ms) of each operator of ``frame`` that gives results by time, and does it
    later than the watermark, since it is behind a join that keeps rows.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    plan = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(analysed)  # noqa: SLF001
    found: dict[str, int] = {}
    _delays_ms(plan, frame.sparkSession._jvm, found)  # noqa: SLF001
    return tuple(sorted(found.items()))


def used_columns(frame: DataFrame, name: str) -> list[str]:
    """Return the columns of input ``name`` that the optimised query reads, without ``event_time``.

    The optimiser prunes columns below ``observe``: those that are left are read. If it did not
    prune, all are returned.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    # Optimised, but not run.
    plan = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(analysed)  # noqa: SLF001
    used: dict[str, None] = {}
    for node in nodes_of(plan):
        if _name(node) == "CollectMetrics" and str(node.name()) == OBSERVED + name:
            used |= {str(attribute.name()): None for attribute in _items(node.output())}
    return [column for column in used if column != "event_time"]


def shape_of(frame: DataFrame) -> list[str]:
    """Return what the optimised query does with its inputs, in words that do not depend on the
    numbers that Spark gave to columns and to arguments of lambda functions.

    Two queries of the same shape do the same with their inputs, whatever unused columns these have.
    """
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    plan = frame.sparkSession._jsparkSession.sessionState().optimizer().execute(analysed)  # noqa: SLF001
    numbers: dict[str, str] = {}

    def words(node: Any) -> Iterator[str]:
        """Describe ``node`` and the nodes below it, one a line."""
        if _name(node) == "CollectMetrics":
            yield (
                f"input {node.name()}:"
                f" {sorted(str(attribute.name()) for attribute in _items(node.output()))}"
            )
            return
        yield " ".join(
            [
                _name(node),
                *(str(expression.toString()) for expression in _items(node.expressions())),
            ]
        )
        for child in (*_items(node.subqueries()), *_items(node.children())):
            yield from words(child)

    return [
        _NUMBERED.sub(
            lambda found: numbers.setdefault(found[0], f"#{len(numbers)}"),
            _ARGUMENT.sub("lambda #", line),
        )
        for line in words(plan)
    ]


def literals_of(frame: DataFrame) -> list[str]:
    """Return the constants of the analysed query, as SQL, in the order of its plan."""
    plans = [frame._jdf.queryExecution().analyzed()]  # noqa: SLF001
    found = []
    for node in _all_nodes(plans):
        plans += _items(node.subqueries())
        for expression in _items(node.expressions()):
            found += [
                str(inner.sql()) for inner, kind, *_ in _named(expression) if kind == "Literal"
            ]
    return found


def processors_used() -> int:
    """Return how many processors ``anabranch.stateful`` has put into queries since the last
    call.
    """
    return stateful.take_uses()
