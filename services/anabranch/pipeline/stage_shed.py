"""Reader of the key ``shed`` of a stage: the rows that an overloaded stage may leave out of its
tentative results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from anabranch.pipeline import row_expressions, transforms
from anabranch.pipeline.document import MISSING, Document, Place
from anabranch.pipeline.model import Shed, Stage

_KINDS: Final = ("off", "rows", "keys")


def read_shed(
    document: Document,
    raw: Mapping[str, Any],
    stage: Stage,
    by: Mapping[str, tuple[str, ...]],
    *,
    checks_code: bool,
) -> Shed:
    """Return what the stage sheds; valid only if there is no mistake.

    Args:
        document: Takes the mistakes.
        raw: The stage's section.
        stage: The stage as read so far.
        by: Key columns of each input, from ``shard_by``; empty where no key is known. An input
            without columns is read whole.
        checks_code: Whether to check that a function that the file names exists.
    """
    at: Place = ("stages", stage.name, "shed")
    function = expression = ""
    has_branches = stage.on_missing_input != "suspend"
    given = raw.get("shed", "off")
    if given is False:  # YAML 1.1 reads off as false, and so does a reader's eye
        kind = "off"
    elif isinstance(given, dict) and "by" in given:
        kind, expression = "by", _expression(document, given, at)
    elif isinstance(given, dict):
        kind, function = "transform", _function(document, given, at, checks_code=checks_code)
    else:
        kind = document.choice(given, at, _KINDS)
    if kind == "off":
        return Shed()
    if not has_branches:
        document.mistake(
            at,
            f"{kind} gives tentative results, and on_missing_input: suspend allows none; leave one"
            " of them out",
        )
    if kind == "keys" and not by:
        document.mistake(
            at,
            "keys needs the columns of the key; add shard_by: [COLUMN], or those of each input,"
            " shard_by: {INPUT: [COLUMN]}; without a key write shed: rows",
        )
    # An input that each shard reads whole is small, and the others are joined to it: without its
    # rows the kept ones would have no results.
    cut = [name for name in stage.reads if by.get(name) or not by]
    columns = {name: by[name] if kind == "keys" and by else () for name in cut}
    return Shed(kind=cast("Any", kind), expression=expression, function=function, by=columns)


def _expression(document: Document, given: Mapping[str, Any], at: Place) -> str:
    """Return the expression that ``given`` has; empty after a mistake."""
    raw = document.mapping(given, at, ("by",))
    expression = document.text(raw.get("by", MISSING), (*at, "by"))
    if expression is None:
        return ""
    if wrong := row_expressions.wrong_syntax(expression):
        document.mistake((*at, "by"), wrong)
        return ""
    return expression


def _function(document: Document, given: Mapping[str, Any], at: Place, *, checks_code: bool) -> str:
    """Return the function that ``given`` names; empty after a mistake."""
    raw = document.mapping(given, at, ("transform",))
    reference = document.text(raw.get("transform", MISSING), (*at, "transform"))
    if reference is None:
        return ""
    wrong = transforms.check(reference, document.path, ["rows"], ()) if checks_code else None
    if wrong is not None:
        document.mistake((*at, "transform"), wrong)
    return reference
