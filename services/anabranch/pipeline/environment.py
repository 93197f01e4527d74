"""Environment variables in the pipeline file: ``${NAME}``, ``${NAME:-default}``; ``$${`` stands for
``${``.

Values are filled in after the YAML is read, so that the content of a variable cannot add keys. A
value that consists of one variable becomes a number or truth value if its text is one; inside a
longer text a variable stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from anabranch.pipeline.document import Place

_VARIABLE: Final = re.compile(r"\$(\$\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\})")
_UNFINISHED: Final = re.compile(r"(?<!\$)\$\{")


def fill_in(root: Any, variables: Mapping[str, str], mistake: Callable[[Place, str], None]) -> None:
    """Fill in the values of ``root``, a mapping or list, in place. ``mistake`` is called for each
    variable that is not set.
    """
    _walk(root, (), variables, mistake, set())


def _walk(
    node: Any,
    at: Place,
    variables: Mapping[str, str],
    mistake: Callable[[Place, str], None],
    seen: set[int],
) -> None:
    if id(node) in seen:  # a YAML alias: filled in already, and it may contain itself
        return
    seen.add(id(node))
    entries = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    for key, value in entries:
        if isinstance(value, dict | list):
            _walk(value, (*at, key), variables, mistake, seen)
        elif isinstance(value, str) and "${" in value:
            node[key] = _filled(value, (*at, key), variables, mistake)


def _filled(
    text: str, at: Place, variables: Mapping[str, str], mistake: Callable[[Place, str], None]
) -> object:
    def value_of(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name is None:
            return "${"
        value = variables.get(name, "")
        if not value and default is not None:  # as in a shell, an empty value has the default too
            return default[2:]
        if name not in variables:
            mistake(
                at,
                f"the environment variable {name} is not set; set it, or write"
                f" ${{{name}:-DEFAULT}}",
            )
        return value

    if _UNFINISHED.search(_VARIABLE.sub("", text)):
        mistake(
            at,
            f"{text!r} has a ${{ that is no variable; write ${{NAME}} or ${{NAME:-DEFAULT}}, or"
            " $${ for the characters themselves",
        )
        return text
    filled = _VARIABLE.sub(value_of, text)
    whole = _VARIABLE.fullmatch(text)
    return _scalar(filled) if whole is not None and whole["name"] is not None else filled


def _scalar(text: str) -> object:
    """Return the number or truth value that YAML reads ``text`` as; otherwise ``text``."""
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError):
        return text
    return value if isinstance(value, bool | int | float) else text
