"""Reader of the key ``qos`` of an output: the utility of its results by delay and by loss."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Final

from anabranch.pipeline.document import Document, Place, shown
from anabranch.pipeline.durations import parse_ms
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.utility import FULL, Curve, Point, Qos, wrong_point

_KEYS: Final = ("latency", "loss")
_POINTS_MAX: Final = 32
"""Maximum number of points of a curve: more tell nothing that a person could mean."""
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9])?)\s*%")
_CONSTANT: Final = ((0, FULL), (KEPT_ALL, FULL))
"""Curve that is left out of the file: it makes no difference."""


def read_qos(document: Document, value: object, at: Place) -> Qos | None:
    """Return the functions that ``value`` states; None after a mistake."""
    before = len(document.mistakes)
    raw = document.mapping(value, at, _KEYS)
    if isinstance(value, dict) and not value:
        document.mistake(
            at, "is empty; write for example latency: {0s: 1, 3s: 1, 10s: 0}, or leave it out"
        )
    latency = _points(document, raw, (*at, "latency"), _delay, is_concave=False)
    loss = _points(document, raw, (*at, "loss"), _share, is_concave=True)
    if len(document.mistakes) > before:
        return None
    return Qos(Curve(latency), Curve(loss, is_concave=True))


def _points(
    document: Document,
    raw: dict[str, object],
    at: Place,
    place_of: Callable[[object], int],
    *,
    is_concave: bool,
) -> tuple[Point, ...]:
    """Return the points of one function, in the order of the file, and note what is wrong."""
    key = str(at[-1])
    if key not in raw:
        return _CONSTANT
    value = raw[key]
    if not isinstance(value, dict) or not 0 < len(value) <= _POINTS_MAX:
        example = "{0%: 1, 50%: 0.8, 100%: 0}" if is_concave else "{0s: 1, 3s: 1, 10s: 0}"
        document.mistake(
            at, f"a mapping of 1 to {_POINTS_MAX} points is wanted, for example {example}"
        )
        return _CONSTANT
    points: list[Point] = []
    for place, utility in value.items():
        try:
            points.append((place_of(place), _utility(utility)))
        except ValueError as error:
            document.mistake((*at, place), str(error))
            return _CONSTANT
    wrong = wrong_point(points, is_concave=is_concave)
    if wrong is not None:
        index, why = wrong
        document.mistake((*at, list(value)[index]), why)
    return tuple(points)


def _delay(value: object) -> int:
    """Return a delay in ms.

    Raises:
        ValueError: ``value`` is no duration.
    """
    return parse_ms(value)


def _share(value: object) -> int:
    """Return a share of rows in per mille.

    Raises:
        ValueError: ``value`` is no percentage from 0 to 100 with at most one decimal.
    """
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    found = int(Decimal(match[1]) * 10) if match else -1
    if not 0 <= found <= KEPT_ALL:
        raise ValueError(f"{shown(value)} is no share of rows; write for example 50% or 2.5%")
    return found


def _utility(value: object) -> int:
    """Return a utility in per mille.

    Raises:
        ValueError: ``value`` is no number from 0 to 1 with at most three decimals.
    """
    found = Decimal(-1)
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        # By its digits: 0.8 as a binary fraction has more than three decimals.
        found = Decimal(repr(float(value))) * FULL
    if not 0 <= found <= FULL or found != int(found):
        raise ValueError(
            f"{shown(value)} is no utility; write a number from 0 to 1 with at most three decimals"
        )
    return int(found)
