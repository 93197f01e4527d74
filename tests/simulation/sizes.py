"""Numbers of items that the services of a run hold in memory, collection by collection, and which
of them grow while nothing changes but time.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final

_LEFT_OUT: Final = (
    "anabranch.adapters.",
    "anabranch.pipeline.",
    "anabranch.process.",
    "prometheus_client",
    "simulation.",
)
"""Modules whose objects a service does not hold for itself: the log and the index of the cluster,
the pipeline file, settings, and what stands in for engine and disks here.
"""
_PLAIN: Final = (str, bytes, int, float, type, type(None), threading.Thread)
_SLACK: Final = 12
"""Number of items by which a collection may differ between two windows of time, by their cuts."""


def held(service: object) -> Counter[str]:
    """Return the number of items of each collection that can be reached from ``service``, by the
    class and the attribute that hold it. Collections within collections count for the outermost.
    """
    found: Counter[str] = Counter()
    seen: set[int] = {id(service)}
    left: list[tuple[str, object]] = [("", service)]
    while left:
        name, each = left.pop()
        if isinstance(each, Mapping):
            found[name] += len(each)
            items = [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | deque):
            found[name] += len(each)
            items = [*each]
        else:
            for attribute, value in _attributes(each, is_root=each is service):
                if _is_followed(value, seen):
                    seen.add(id(value))
                    left.append((f"{type(each).__name__}.{attribute}", value))
            continue
        for value in items:
            if _is_followed(value, seen):
                seen.add(id(value))
                left.append((name, value))
    return found


def _attributes(of: object, *, is_root: bool) -> Sequence[tuple[str, object]]:
    """Return the attributes of an object of the services; none of others."""
    module = type(of).__module__
    if not is_root and (not module.startswith("anabranch.") or module.startswith(_LEFT_OUT)):
        return []
    names = [name for each in type(of).__mro__ for name in getattr(each, "__slots__", ())]
    slots = [(name, getattr(of, name)) for name in names if hasattr(of, name)]
    return [*slots, *getattr(of, "__dict__", {}).items()]


def _is_followed(value: object, seen: set[int]) -> bool:
    return not isinstance(value, _PLAIN) and id(value) not in seen


def grown(samples: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the collections whose largest size in the last third of ``samples`` exceeds their
    largest in the first two, as sentences.
    """
    cut = len(samples) * 2 // 3
    return grown_since(samples[:cut], samples[cut:])


def grown_since(
    before: Sequence[Mapping[str, int]], after: Sequence[Mapping[str, int]]
) -> list[str]:
    """Return the collections whose largest size in ``after`` exceeds their largest in ``before``,
    as sentences.
    """
    wrong = []
    for name in sorted({name for each in after for name in each}):
        most, found = (max(each.get(name, 0) for each in part) for part in (before, after))
        if found > most + _SLACK:
            wrong.append(f"{name} has {found} items, it had {most} at most")
    return wrong
