"""Reader of a stage's parameters: plain values that its function receives beside its inputs."""

from __future__ import annotations

import math
from typing import Final

from anabranch.pipeline.document import Document, Place, shown

PARAMETER_VALUES_MAX: Final = 10_000
"""Maximum number of values in the parameters of a stage: YAML aliases let a small file unfold into
a huge one.
"""


def read_parameters(document: Document, value: object, at: Place) -> dict[str, object]:
    """Return the arguments of a stage's function, by name. Reports a parameter that cannot be an
    argument.
    """
    raw = document.mapping(value, at, None)
    left = [PARAMETER_VALUES_MAX]
    result: dict[str, object] = {}
    for key, item in raw.items():
        if not key.isidentifier():
            document.mistake(
                (*at, key),
                "a parameter is an argument of a function; use letters, digits and '_'",
            )
        try:
            result[key] = _plain(item, left)
        except (ValueError, RecursionError) as error:
            document.mistake((*at, key), str(error))
    return result


def _plain(value: object, left: list[int]) -> object:
    """Return a parameter as plain Python values. ``left[0]`` counts down the values that are still
    allowed.
    """
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"parameters hold more than {PARAMETER_VALUES_MAX} values")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_plain(item, left) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str(key): _plain(item, left) for key, item in value.items()}
    raise ValueError(
        f"{shown(value)} is not a plain value; use texts, numbers, true, false, lists or mappings"
    )
