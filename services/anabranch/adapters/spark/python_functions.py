"""Identity of the Python functions in a Spark plan, on whose computation state depends.

A function is identified by its source, without comments, docstrings and layout, and by the plain
values that it captured or that its module names. A processor whose class sets ``state_version`` is
identified by that instead: its author states when its state changes meaning.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.cloudpickle import loads

from anabranch.adapters.spark.plan_facts import expressions_of, nodes_of

_PLAIN: Final = (str, int, float, bool, bytes, type(None))
"""Types of values that count."""
_NOT_THE_USERS: Final = ("anabranch.", "pyspark.", "builtins", "abc", "typing")
"""Modules whose classes do not count."""


def functions_in(plan: Any) -> Mapping[int, str]:
    """Return what each Python function in ``plan`` computes, as ``describe`` does, by number of its
    result.

    Args:
        plan: Spark's, in Java.
    """
    return {
        int(each.resultId().id()): describe(loads(bytes(each.func().command().unsafeArray()))[0])
        for node in nodes_of(plan)
        for expression in expressions_of(node)
        for each, name in expression
        if name == "PythonUDF"
    }


def describe(function: Callable[..., Any]) -> str:
    """Return the name of ``function``, or of its processor's class, and a digest of what it
    computes: the same in every process.
    """
    processor = getattr(getattr(function, "__self__", None), "_stateful_processor", None)
    facts = _function_facts(function) if processor is None else _processor_facts(processor)
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=4).hexdigest()
    return f"{facts[0]} {digest}"


def _processor_facts(processor: object) -> list[object]:
    """Return the facts by which a processor is identified."""
    kind = type(processor)
    version = getattr(kind, "state_version", None)
    code: list[object] = [("version", version)]
    if version is None:
        code = [
            (_source(each), _values_of(each))
            for each in kind.__mro__
            if not each.__module__.startswith(_NOT_THE_USERS)
        ]
    columns = getattr(processor, "columns", None)
    stored = [("stored as", columns.stored_as)] if columns is not None and columns.stored_as else []
    return [kind.__name__, *code, _plain(vars(processor)), *stored]


def _function_facts(function: Callable[..., Any]) -> list[object]:
    """Return the facts by which a function is identified."""
    whole = inspect.unwrap(function)
    return [getattr(whole, "__name__", ""), _source(whole), _values(whole)]


def _values_of(kind: type) -> list[tuple[str, str]]:
    """Return the plain values that the methods of ``kind`` use and do not define."""
    return sorted({value for method in vars(kind).values() for value in _values(method)})


def _values(function: object) -> list[tuple[str, str]]:
    """Return the plain values that ``function`` uses from the functions and the module around it;
    none of what is not a function.
    """
    if not inspect.isfunction(function):
        return []
    around = inspect.getclosurevars(function)
    return _plain({**around.globals, **around.nonlocals})


def _plain(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the plain ones of ``values``, sorted by name."""
    return sorted(
        (name, repr(value)) for name, value in values.items() if isinstance(value, _PLAIN)
    )


def _source(of: Any) -> str:
    """Return the source of a class or function without layout, comments and docstrings; its name
    where there is none.
    """
    try:
        text = textwrap.dedent(inspect.getsource(of))
    except (OSError, TypeError):
        return str(getattr(of, "__qualname__", of.__class__.__qualname__))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the source is a lambda within a longer expression
        return " ".join(text.split())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if getattr(of, "__name__", "") == "<lambda>" and len(lambdas) == 1:
        return ast.unparse(lambdas[0])
    return ast.unparse(tree)
