"""Plants a bug in the running program: one function gets another text. Only what the
simulation runs sees it, and only within the ``with``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

RESULTS: Final = (
    "ingestion",
    "streams",
    "tentative",
    "conservation",
    "corrected",
    "live",
    "upsert",
)
"""Checkers of what comes out."""

OVER: Final = ("crash", "double", "race", "zombie")
"""Faults after which somebody starts again while others go on."""

BRANCH: Final = ("silent", "silent all")
"""Faults that make a branch."""


class StaleMutantError(Exception):
    """The function's text is not what the mutant was written for."""


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands once in the text of the function ``where``
    (``module:Class.function``), becomes ``new``.
    """

    name: str
    where: str
    old: str
    new: str
    breaks: str
    """The rule or invariant that it breaks."""
    needs: tuple[str, ...] = ()
    """Faults of which a seed must have one to come near it; empty: any."""
    scenario: str = ""
    """Of the seeds that come near it (``scenarios``); empty: any."""
    by: tuple[str, ...] = RESULTS
    """The checkers that are meant for it: only what they tell counts."""


def _find(where: str) -> tuple[ModuleType, Any, str, Any]:
    """(module, owner, name, the function as the owner's dictionary has it)."""
    module_name, _, path = where.partition(":")
    module = importlib.import_module(f"anabranch.{module_name}")
    owner: Any = module
    *owners, name = path.split(".")
    for each in owners:
        owner = vars(owner)[each]
    return module, owner, name, vars(owner)[name]


def _however_laid_out(code: str) -> re.Pattern[str]:
    """Finds ``code`` wherever the formatter breaks its lines."""
    tokens = re.findall(r"\w+|[^\w\s]", code)
    return re.compile(
        r"\s*".join((r",?\s*" if token in ")]}" else "") + re.escape(token) for token in tokens)
    )


def changed(mutant: Mutant) -> tuple[ModuleType, Any, str, Any, Any]:
    """(module, owner, name, original, changed function).

    Raises:
        StaleMutantError: the text to replace is not there, or not once.
    """
    module, owner, name, original = _find(mutant.where)
    function: Any = (
        original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    )
    function = original.fget if isinstance(original, property) else function
    text = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    spoilt, times = _however_laid_out(mutant.old).subn(lambda _: mutant.new, text)
    if times != 1:
        raise StaleMutantError(
            f"{mutant.name}: {mutant.old!r} stands {times} times in {mutant.where}"
        )
    scope: dict[str, Any] = {}
    exec(
        compile(
            "from __future__ import annotations\n" + spoilt,
            f"<{mutant.name}>",
            "exec",
        ),
        vars(module),
        scope,
    )
    return module, owner, name, original, scope[name]


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Within it, the bug is there; for a module's function in every module that imported it
    by name.
    """
    module, owner, name, original, replacement = changed(mutant)
    if owner is not module:
        setattr(owner, name, replacement)
        try:
            yield
        finally:
            setattr(owner, name, original)
        return
    holders = [
        m
        for m in list(sys.modules.values())
        if getattr(m, "__name__", "").startswith(("anabranch", "simulation", "experiments"))
        and vars(m).get(name) is original
    ]
    for holder in holders:
        setattr(holder, name, replacement)
    try:
        yield
    finally:
        for holder in holders:
            setattr(holder, name, original)
