"""Base of all readers of YAML files: takes values out one by one and notes each mistake as one line
for the user, with its line number.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq, TaggedScalar

from anabranch.pipeline.durations import parse_ms
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import checked_name

_SIZE: Final = re.compile(r"([1-9][0-9]{0,5})([km])")
_UNIT_BYTES: Final = {"k": 1_024, "m": 1_024 * 1_024}

Place = tuple[str | int, ...]
"""Path of keys and indexes that leads to a value."""

MISSING: Final = object()
"""Stands for an absent value. None cannot: it is the value of a key that is null."""


class Document:
    """YAML document that a reader walks through, with the mistakes found so far and their lines."""

    def __init__(self, path: Path, root: object) -> None:
        self.path = path
        self.root = root
        self.mistakes: list[tuple[int, str]] = []

    def sorted_mistakes(self) -> list[str]:
        """Return the mistakes as lines for the user, in the file's order, without duplicates."""
        return list(
            dict.fromkeys(
                f"{self.path}:{line}: {text}"
                for line, text in sorted(self.mistakes, key=lambda entry: entry[0])
            )
        )

    # -- places
    # ----------------------------------------------------------------------------------------------

    def line(self, at: Place) -> int:
        """Return the line of the value at ``at``, or of the innermost value around it."""
        node, line = self.root, 1
        for step in at:
            try:
                if isinstance(node, CommentedMap) and step in node:
                    line = int(node.lc.key(step)[0]) + 1
                elif isinstance(node, CommentedSeq) and isinstance(step, int):
                    line = int(node.lc.item(step)[0]) + 1
                else:
                    break
                node = node[step]
            except (
                KeyError,
                IndexError,
                TypeError,
                AttributeError,
            ):  # a key merged with << has no line of its own
                break
        return line

    def mistake(self, at: Place, text: str) -> None:
        """Note a mistake for the user: ``text`` says what is wrong with the value at the path
        ``at``.
        """
        key = key_text(at)
        self.mistakes.append((self.line(at), f"{key}: {text}" if key else text))

    # -- values
    # ----------------------------------------------------------------------------------------------

    def mapping(self, value: object, at: Place, keys: tuple[str, ...] | None) -> dict[str, Any]:
        """Return ``value`` as a mapping with no keys but ``keys`` (None: any text). The value of a
        misspelt key is taken for that of the key that was meant, so that it is not missed, too.
        """
        if not isinstance(value, dict):
            if value is None:
                problem = "is empty; indent its content below it"
            elif len(at) > 1 and at[-1] in (keys or ()):
                problem = f"{at[-1]} is a key of an entry of {at[-2]}; indent it below its entry"
            else:
                problem = (
                    f"a mapping is wanted{f' with keys {words(keys)}' if keys else ''}, not"
                    f" {shown(value)}"
                )
            self.mistake(at, problem)
            return {}
        result: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self.mistake(at, f"the key {shown(key)} is not a text; put it in quotes")
            elif keys is not None and key not in keys:
                guess = difflib.get_close_matches(key, keys, 1)
                self.mistake(
                    (*at, key),
                    (
                        f"unknown key; did you mean {guess[0]!r}?"
                        if guess
                        else f"unknown key; known are {words(keys)}"
                    ),
                )
                if guess and guess[0] not in value:
                    result[guess[0]] = item
            else:
                result[key] = item
        return result

    def text(self, value: object, at: Place) -> str | None:
        """Return ``value`` as a non-empty text; None after a mistake."""
        if isinstance(value, str) and value.strip():
            return str(value)
        if value is MISSING:
            problem = f"is missing; add it, {at[-1]}: VALUE"
        elif value is None or isinstance(value, str):
            problem = "is empty; write its value"
        elif isinstance(value, int | float):
            problem = f"a text is wanted, not {shown(value)}; put it in quotes"
        else:
            problem = f"a text is wanted, not {shown(value)}"
        self.mistake(at, problem)
        return None

    def choice(self, value: object, at: Place, known: tuple[str, ...]) -> str:
        """Return ``value`` if it is one of ``known``; the first of them after a mistake."""
        if isinstance(value, str) and value in known:
            return str(value)
        guess = difflib.get_close_matches(str(value), known, 1)
        self.mistake(
            at,
            f"{shown(value)} is not known; "
            + (f"did you mean {guess[0]!r}?" if guess else f"use {words(known)}"),
        )
        return known[0]

    def boolean(self, value: object, at: Place) -> bool:
        """Return ``value`` as true or false; false after a mistake."""
        if not isinstance(value, bool):
            self.mistake(at, f"true or false is wanted, not {shown(value)}")
        return value is True

    def integer(self, value: object, at: Place, low: int, high: int) -> int:
        """Return ``value`` as an integer from ``low`` to ``high``; ``low`` after a mistake."""
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return int(value)
        self.mistake(at, f"an integer from {low} to {high} is wanted, not {shown(value)}")
        return low

    def duration(
        self,
        value: object,
        at: Place,
        low_ms: int = 0,
        high_ms: int | None = None,
        word: str | None = None,
    ) -> int | None:
        """Return ``value`` as a duration in ms, or None where it is the text ``word``."""
        if word is not None and value == word:
            return None
        try:
            return parse_ms(value, low_ms, high_ms)
        except ValueError as error:
            self.mistake(at, f"{error}{f', or {word!r}' if word else ''}")
            return low_ms

    def size(self, value: object, at: Place, high_bytes: int) -> int:
        """Return ``value``, such as ``512k`` or ``8m``, as a number of bytes; ``high_bytes`` after
        a mistake.
        """
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        found = int(match[1]) * _UNIT_BYTES[match[2]] if match else 0
        if not 0 < found <= high_bytes:
            self.mistake(
                at,
                f"{shown(value)} is no size up to {high_bytes // _UNIT_BYTES['m']}m; write for"
                " example 512k or 8m",
            )
            return high_bytes
        return found

    def texts(self, value: object, at: Place, what: str) -> list[tuple[str, Place]]:
        """Return distinct texts, at least one, each with its place. A single text counts as a list
        of one; the list is empty after a mistake.
        """
        if isinstance(value, str):
            text = self.text(value, at)
            return [] if text is None else [(text, at)]
        if value is MISSING or value == []:
            problem = "is missing" if value is MISSING else "is empty"
            self.mistake(at, f"{problem}; name at least one {what}")
            return []
        if not isinstance(value, list):
            self.mistake(at, f"a list of {what}s is wanted, not {shown(value)}")
            return []
        result: list[tuple[str, Place]] = []
        for index, item in enumerate(value):
            text = self.text(item, (*at, index))
            if text is not None and any(text == other for other, _ in result):
                self.mistake((*at, index), f"{what} {text} is there twice; leave one out")
            elif text is not None:
                result.append((text, (*at, index)))
        return result

    def name(self, value: object, at: Place, kind: str) -> str | None:
        """Return ``value`` as a name that topics, files and metrics can carry; None after a
        mistake.
        """
        text = self.text(value, at)
        if text is None:
            return None
        try:
            return checked_name(kind, text)
        except ConfigurationError as error:
            self.mistake(at, str(error))
            return None


def key_text(at: Place) -> str:
    """Return a place as text, such as ``stages.tolls.reads[0]``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")


def words(words: tuple[str, ...] | list[str]) -> str:
    """Return ``words`` as an enumeration for a sentence."""
    return ", ".join(words) if words else "none"


def shown(value: object) -> str:
    """Return ``value`` as a message shows it, in at most 60 characters."""
    if value is None or value is MISSING:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, TaggedScalar):
        return f"a value with the tag {value.tag}; put it in quotes"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def guess(word: str, known: list[str]) -> str:
    """Return a hint on what was meant by ``word``, which is none of ``known``, for a message."""
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {words(known)}"
