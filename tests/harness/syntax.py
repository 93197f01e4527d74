"""The syntax of the project's files, each read once however many tests look at it."""

from __future__ import annotations

import ast
from functools import cache


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Every node of a module, in the order of ``ast.walk``: the module first."""
    return tuple(ast.walk(ast.parse(source)))


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name and its attributes; empty for what begins otherwise."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
