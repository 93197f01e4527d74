"""Every record that a source was given ends in exactly one place: once in the stream, or in
the dead letters with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def check(
    name: str,
    given: Mapping[int, bool],
    in_stream: Iterable[int],
    dead: Collection[int],
    *,
    only_good: bool = True,
) -> list[str]:
    """Return what is wrong, in words.

    Args:
        name: Of the source.
        given: Number of every record, and whether it is a good one, which belongs into the stream;
            one that is late is not.
        in_stream: Numbers of the records that the stream's closed buckets hold.
        dead: Numbers of the records that are dead letters; twice is once (at least once is the
            promise).
        only_good: Bad records must not be in the stream.
    """
    wrong: list[str] = []
    streamed = Counter(in_stream)
    letters = set(dead)
    for number, is_good in given.items():
        count = streamed.pop(number, 0)
        if count > 1:
            wrong.append(f"{name}: record {number} is in the stream {count} times")
        if count and number in letters:
            wrong.append(f"{name}: record {number} is in the stream and a dead letter")
        if not count and number not in letters:
            wrong.append(f"{name}: record {number} is lost")
        if count and only_good and not is_good:
            wrong.append(f"{name}: bad record {number} is in the stream")
        if number in letters and is_good:
            wrong.append(f"{name}: good record {number} is a dead letter")
    if streamed:
        wrong.append(f"{name}: nobody sent {sorted(streamed)[:10]}")
    return wrong
