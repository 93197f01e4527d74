"""Plants a bug in the running program: one function gets another text. Only what the
simulation runs sees it, and only within the ``with``.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

OVER: Final = ("crash", "double", "race", "zombie")
"""Faults after which somebody starts again while others go on."""

FEDERATION: Final = "federation"
"""In place of a scenario: the seeds of several participants (``market``)."""

SPLITS: Final = "splits"
"""In place of a scenario: the seeds in which shards are split (``split_world``)."""

BY_CHECKPOINT: Final = "by checkpoint"
"""Among what a mutant needs: a partner's node that begins from its owner's checkpoint."""
HOSTILE_STORE: Final = "hostile store"
"""Among what a mutant needs: a store of these checkpoints that serves forged ones, too."""
RESALE: Final = "resale"
"""Among what a mutant needs: a seed in which a stage may be sold on."""

BRANCH: Final = ("silent", "silent all")
"""Faults that make a branch."""


class StaleMutantError(Exception):
    """The function's text is not what the mutant was written for."""


class MutantDoesNotRunError(Exception):
    """The planted text itself failed, of a name or an argument that is not there: it is no bug that
    works wrongly, and that nothing finds it shows nothing.
    """


_DOES_NOT_RUN: Final = (AttributeError, NameError, ImportError, TypeError)


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
    """Scenario of the seeds that come near it (``scenarios``); empty: any."""
    by: tuple[str, ...] = ()
    """In the simulation, the checkers that are meant for it: only what they tell counts."""


def _find(where: str) -> tuple[ModuleType, Any, str, Any]:
    """Return (module, owner, name, the function as in the owner's dictionary)."""
    module_name, _, path = where.partition(":")
    module = importlib.import_module(f"anabranch.{module_name}")
    owner: Any = module
    *owners, name = path.split(".")
    for each in owners:
        owner = vars(owner)[each]
    return module, owner, name, vars(owner)[name]


def _however_laid_out(code: str) -> re.Pattern[str]:
    """Return a pattern of ``code`` wherever the formatter breaks its lines."""
    tokens = re.findall(r"\w+|[^\w\s]", code)
    return re.compile(
        r"\s*".join((r",?\s*" if token in ")]}" else "") + re.escape(token) for token in tokens)
    )


def _texts(mutant: Mutant) -> tuple[str, str]:
    """(text of the function, the same with the bug).

    Raises:
        StaleMutantError: the text to replace is not there, or not once.
    """
    function: Any = _find(mutant.where)[-1]
    if isinstance(function, (staticmethod, classmethod)):
        function = function.__func__
    function = function.fget if isinstance(function, property) else function
    text = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    spoilt, times = _however_laid_out(mutant.old).subn(lambda _: mutant.new, text)
    if times != 1:
        raise StaleMutantError(
            f"{mutant.name}: {mutant.old!r} stands {times} times in {mutant.where}"
        )
    return text, spoilt


def changed(mutant: Mutant) -> tuple[ModuleType, Any, str, Any, Any]:
    """Return (module, owner, name, original, changed function).

    Raises:
        StaleMutantError: the text to replace is not there, or not once.
    """
    module, owner, name, original = _find(mutant.where)
    _, spoilt = _texts(mutant)
    scope: dict[str, Any] = {}
    exec(
        compile(
            "from __future__ import annotations\n" + spoilt,
            _file_of(mutant),
            "exec",
        ),
        vars(module),
        scope,
    )
    return module, owner, name, original, scope[name]


def _file_of(mutant: Mutant) -> str:
    return f"<{mutant.name}>"


def check_runs(mutant: Mutant, error: BaseException | None) -> None:
    """Raise MutantDoesNotRunError if the planted text itself failed with ``error``."""
    if not isinstance(error, _DOES_NOT_RUN):
        return
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename == _file_of(mutant):
        message = f"{mutant.name}: the mutant does not run: {type(error).__name__}: {error}"
        raise MutantDoesNotRunError(message) from error


def unknown_names(mutant: Mutant) -> set[str]:
    """Names that the bug brings in and that are not there: global ones that its module lacks,
    attributes of ``self`` that the text of its class and of those above it never names.

    Raises:
        StaleMutantError: the text to replace is not there, or not once.
    """
    module, owner, *_ = _find(mutant.where)
    text, spoilt = _texts(mutant)
    new = _names(spoilt) - _names(text)
    known = {*vars(module), *vars(builtins)}
    if isinstance(owner, type):
        for each in (c for c in owner.__mro__ if c.__module__ != "builtins"):
            known |= {f"self.{name}" for name in vars(each)}
            known |= _names(textwrap.dedent(inspect.getsource(each)))
    return new - known


def _names(text: str) -> set[str]:
    """Global names that a text reads, and attributes of ``self``, as ``self.name``."""
    read, bound = set(), set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                read.add(f"self.{name}")
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                bound.add(name)
            case _:
                pass
    return read - bound


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
