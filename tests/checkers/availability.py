"""How late new results may come while something is missing (docs/concepts.md): the promise
that ``max_delay`` is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping


def signs(arrivals: Iterable[tuple[int, int]]) -> dict[int, int]:
    """(time, bucket) of every input record, as its topic got it -> when it became known that the
    input is past each bucket's predecessor.

    A record of bucket b is a sign for every bucket up to b. Only buckets that records are in are
    named.
    """
    ordered = sorted(arrivals)
    found: dict[int, int] = {}
    for bucket in sorted({bucket for _, bucket in ordered}):
        found[bucket] = next(at_ms for at_ms, other in ordered if other >= bucket)
    return found


def check(
    signs_ms: Mapping[int, int], shown: list[tuple[int, int]], bound_ms: int, until_ms: int
) -> list[str]:
    """Return what came too late, in words.

    Args:
        signs_ms: Of each bucket with data.
        shown: (time, last bucket that the live topic covers, stable or tentative), ascending in
            both.
        bound_ms: How long after its sign a bucket must be covered.
        until_ms: Buckets whose bound ends later are not judged.
    """
    wrong = []
    covered = [bucket for _, bucket in shown]
    for bucket, sign_ms in sorted(signs_ms.items()):
        deadline_ms = sign_ms + bound_ms
        if deadline_ms > until_ms:
            continue
        index = bisect_left(covered, bucket)
        at_ms = shown[index][0] if index < len(shown) else None
        if at_ms is None or at_ms > deadline_ms:
            wrong.append(
                f"live: bucket {bucket}, first sign at {sign_ms} ms, shown at {at_ms} ms, allowed"
                f" until {deadline_ms} ms"
            )
    return wrong


def check_later(
    signs_ms: Mapping[int, int],
    shown: list[tuple[int, int]],
    failing: list[tuple[int, bool]],
    bound_ms: int,
    until_ms: int,
    anew_ms: Collection[int] = (),
) -> list[str]:
    """Return what came too late although the stages had continued without input before: then no
    bucket gets the long wait any more (policy process). If a stage is done with one failure while
    another input has failed, the topic stays in a failure, and the stage waits anew: a bucket that
    it showed then is not judged.

    Args:
        signs_ms: As in ``check``.
        shown: As in ``check``.
        failing: (time, whether the topic is in a failure from then on), ascending.
        bound_ms: How long after its sign a bucket must be covered that had its sign in a failure
            which goes on for as long.
        until_ms: Buckets whose bound ends later are not judged.
        anew_ms: When a replica went on without input that had done so before, in another failure.
    """
    wrong = []
    covered, times = [bucket for _, bucket in shown], [at_ms for at_ms, _ in failing]
    for bucket, sign_ms in sorted(signs_ms.items()):
        deadline_ms = sign_ms + bound_ms
        states = failing[
            max(0, bisect_right(times, sign_ms) - 1) : bisect_right(times, deadline_ms)
        ]
        if (
            deadline_ms > until_ms
            or not states
            or states[0][0] > sign_ms
            or not all(state for _, state in states)
        ):
            continue
        index = bisect_left(covered, bucket)
        at_ms = shown[index][0] if index < len(shown) else None
        if at_ms is not None and any(sign_ms < each <= at_ms for each in anew_ms):
            continue
        if at_ms is None or at_ms > deadline_ms:
            wrong.append(
                f"live: bucket {bucket}, first sign in a failure at {sign_ms} ms, shown at {at_ms}"
                f" ms, allowed until {deadline_ms} ms"
            )
    return wrong


def check_stable_claims(
    claims: Iterable[tuple[int, str, int]],
    complete: Mapping[str, list[tuple[int, int]]],
    reads: Mapping[str, Iterable[str]],
    within_ms: int,
) -> list[str]:
    """Check that a replica that reports STABLE gives results in time: what was complete
    ``within_ms`` before was run.

    Args:
        claims: (time, stage, bucket up to which the replica that said it had run).
        complete: Of each stream (time, bucket up to which it was closed from then on), ascending.
        reads: The inputs of each stage.
        within_ms: A long wait, and what goes by until a replica sees that it is over.
    """
    wrong = []
    for at_ms, stage, bucket in claims:
        upto = min(_closed(complete[stream], at_ms - within_ms) for stream in reads[stage])
        if bucket < upto:
            wrong.append(
                f"{stage}: says at {at_ms} ms that it is stable, has run {bucket}, and {upto} was"
                f" complete {within_ms} ms before"
            )
    return wrong


def _closed(closed: list[tuple[int, int]], at_ms: int) -> int:
    index = bisect_right(closed, (at_ms, 2**63))
    return closed[index - 1][1] if index else 0


def check_correction_order(
    corrects: Iterable[tuple[int, str, str, bool]], within_ms: int
) -> list[str]:
    """No two replicas of a stage correct at full speed together, for longer than they take to hear
    of each other.

    ``corrects``: (time, stage, replica, whether it corrects from then on), ascending.
        ``within_ms``: what they take.
    """
    at_it: dict[str, set[str]] = {}
    since: dict[str, int] = {}
    wrong = []
    for at_ms, stage, replica, does in corrects:
        mine = at_it.setdefault(stage, set())
        if len(mine) > 1 and at_ms - since[stage] > within_ms:
            wrong.append(
                f"{stage}: replicas {sorted(mine)} correct together from {since[stage]} to"
                f" {at_ms} ms"
            )
        before = len(mine)
        (mine.add if does else mine.discard)(replica)
        if before <= 1:
            since[stage] = at_ms
    return wrong
