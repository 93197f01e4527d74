"""The syntax of the project's files, each parsed once however many tests look at it."""

from __future__ import annotations

import ast
import gc
from collections import deque
from functools import cache
from typing import Any, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)


@cache
def tree(source: str) -> ast.Module:
    """Return the syntax tree of a module."""
    # The trees stay. The garbage collector would walk all of them again while it reads the next.
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.freeze()
        gc.enable()


def nodes(source: str, kind: type[Node]) -> list[Node]:
    """Return every node of this kind in a module, in the order of ``ast.walk``."""
    return cast("list[Node]", _by_kind(source).get(kind, []))


@cache
def _by_kind(source: str) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    waiting = deque[ast.AST]([tree(source)])
    while waiting:
        node = waiting.popleft()
        found.setdefault(type(node), []).append(node)
        for name in node._fields:
            inner: Any = getattr(node, name, None)
            if isinstance(inner, list):
                waiting.extend(each for each in inner if isinstance(each, ast.AST))
            elif isinstance(inner, ast.AST) and name != "ctx":
                waiting.append(inner)
    return found


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name and its attributes; empty for what begins otherwise."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
