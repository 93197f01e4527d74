"""Status of a local deployment, as ``anabranch status`` shows it: the supervisor's file joined with
what each process reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anabranch.local import drill_links, probe, state_file
from anabranch.local.drill_links import Cut
from anabranch.local.processes import STOPPED, has_state
from anabranch.local.state_file import ProcessRow
from anabranch.pipeline.durations import readable_ms, time_in_words
from anabranch.protocol.control.records import ReplicaState

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

_REQUESTS_AT_ONCE: Final = 16
_NOT_OF_NOW_MS: Final = 3_600_000
"""Age of a bucket, in ms, from which its event time is taken not to follow the clock: a backlog, or
simulated time.
"""

Row = dict[str, object]
"""Status of one process; ``rows_of`` lists the keys."""


def rows_of(state_dir: Path) -> list[Row] | None:
    """Return the status of each process, servers first; None if no supervisor runs there.

    Keys: service, name, pid, state, last_bucket_ms, lag_ms, age_ms, metrics_port, restarts, error,
    address, waiting_for, cut, detail. The state of a process that runs but does not answer is
    ``paused`` if it was stopped by a signal, else ``silent``. ``cut`` describes what does not pass
    between the process and Kafka; None if all passes. ``detail`` holds what only this kind of
    service reports; empty while it does not answer. A node's has ``stages``: for each replica on it
    stage, replica, state, last_bucket_ms, lag_ms, waiting_for, error, restarts, and a detail.
    """
    deployment = state_file.read(state_dir)
    if deployment is None or state_file.Lock(state_dir).holder() is None:
        return None
    cuts = drill_links.wanted(drill_links.directory_of(state_dir)) if deployment.drills else {}
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
        return list(
            threads.map(
                lambda known: _row(known, cuts.get(f"{known.service}/{known.name}")),
                deployment.processes,
            )
        )


def _row(known: ProcessRow, cut: Cut | None) -> Row:
    """Return the status of one process, asking it over its health port."""
    row: Row = {
        "service": known.service,
        "name": known.name,
        "pid": known.pid,
        "state": known.state,
        "last_bucket_ms": None,
        "lag_ms": None,
        "age_ms": None,
        "metrics_port": known.metrics_port,
        "restarts": known.restarts,
        "error": known.error,
        "address": known.address,
        "waiting_for": None,
        "cut": None if cut is None else cut.in_words(),
        "detail": {},
    }
    if known.pid is not None and has_state(known.pid, STOPPED):
        row["state"] = "paused"
        return row
    if known.metrics_port is None or known.pid is None:
        return row
    answer = probe.status(known.metrics_port)
    if answer is None or answer.get("pid") != known.pid:
        row["state"] = "silent"
        return row
    for key in ("state", "last_bucket_ms", "lag_ms", "age_ms", "waiting_for"):
        row[key] = answer.get(key)
    row["error"] = answer.get("error") or known.error
    row["detail"] = answer.get("detail") or {}
    return row


def stages_of(row: Row) -> list[Row]:
    """Return the status of each replica on a node; empty for another process."""
    detail = row["detail"]
    found = detail.get("stages", []) if isinstance(detail, dict) else []
    return [each for each in found if isinstance(each, dict)]


@dataclass(frozen=True, slots=True)
class Hop:
    """One process on the way from sources to outputs, with the delay that it adds."""

    name: str
    age_ms: int
    """Typical age of a bucket when it is closed here, in ms."""
    added_ms: int
    """Part of ``age_ms`` that arises here, in ms; the rest is the age of the slowest input."""


def hops_of(pipeline: Pipeline, rows: list[Row]) -> list[Hop]:
    """Return the sources, stages and outputs, in this order, that have closed any bucket. Of
    several replicas of a stage the fastest counts, since readers take its buckets.
    """
    ages: dict[tuple[str, str], int] = {}
    for row in rows:
        for service, name, age in (
            (str(row["service"]), str(row["name"]), row["age_ms"]),
            *(("processing", str(stage["stage"]), stage.get("age_ms")) for stage in stages_of(row)),
        ):
            if isinstance(age, int):
                ages[service, name] = min(age, ages.get((service, name), age))
    inputs: dict[tuple[str, str], list[tuple[str, str]]] = {
        ("ingestion", stream): [] for stream in pipeline.source_processes()
    }
    writer = {stream: ("ingestion", stream) for stream in pipeline.source_processes()} | {
        stage: ("processing", stage) for stage in pipeline.stages
    }
    inputs |= {
        ("processing", stage): [
            writer[stream] for stream in pipeline.inputs(stage) if stream in writer
        ]
        for stage in pipeline.order()
    }
    inputs |= {
        ("delivery", name): [writer[output.stage]] for name, output in pipeline.deliveries().items()
    }
    return [
        Hop(
            f"{service}/{name}",
            ages[service, name],
            ages[service, name] - max((ages[each] for each in reads if each in ages), default=0),
        )
        for (service, name), reads in inputs.items()
        if (service, name) in ages
    ]


def slowest_in_words(hops: list[Hop]) -> str:
    """Return a sentence on the hop that adds most to the age of results. Empty if nothing is known,
    or event times do not follow the clock.
    """
    known = [hop for hop in hops if 0 <= hop.age_ms < _NOT_OF_NOW_MS]
    if not known or known != hops:
        return ""
    slowest = max(known, key=lambda hop: hop.added_ms)
    oldest = max(known, key=lambda hop: hop.age_ms)
    return (
        f"slowest hop: {slowest.name} adds {readable_ms(slowest.added_ms)}; a bucket is"
        f" {readable_ms(oldest.age_ms)} old when {oldest.name} closes it"
    )


_STALLS: Final = {
    "not_stored": "input is kept: {}",
    "move_withdrawn": "its move was withdrawn: {}",
    "move_stalled": "its move is stalled: {}",
    "pushed_back": "nothing is read: readers of this source are too far behind",
    "wrong_unit": "{}",
    "too_much_open": "nothing is read: out_of_orderness keeps too many buckets open",
}


def _overload_in_words(detail: dict[str, Any]) -> list[str]:
    """Return what the status of a stage says about an overload."""
    stated = []
    if shed := detail.get("shed"):
        stated.append(f"overloaded: {shed / 10:g} % of the rows left out")
    left_ms = detail.get("overload", {}).get("room_left_ms")
    if left_ms is not None:
        stated.append(f"at this rate new results stop in {left_ms // 60_000} min")
    return stated


def _split_in_words(split: dict[str, Any]) -> str:
    """Return what the status of a shard says about its newest split."""
    halves = split["halves"]
    begun = f"split {split['attempt']} into {' and '.join(halves)}"
    match split["phase"]:
        case "withdrawn":
            return f"{begun} was withdrawn: {split['reason']}"
        case "confirmed":
            return f"{begun} is confirmed"
    stated = [f"{split['compared']} of {split['needed']} buckets compared"]
    for half, behind_ms in zip(halves, split.get("behind_ms", ()), strict=False):
        stated.append(
            f"{half} has not begun"
            if behind_ms is None
            else f"{half} is {readable_ms(behind_ms)} behind"
        )
    return ", ".join([f"{begun}: {stated[0]}", *stated[1:], *filter(None, [split.get("trouble")])])


def detail_in_words(row: Row) -> str:
    """Return the entries of ``detail`` that need attention, in words; empty if none does."""
    detail = row["detail"]
    if not isinstance(detail, dict):
        return ""
    stated = []
    missing = detail.get("missing")
    match detail.get("replica_state"):
        case ReplicaState.UP_FAILURE:
            stated.append(f"tentative: without {', '.join(missing)}" if missing else "tentative")
        case ReplicaState.STABILIZATION:
            stated.append("correcting")
        case ReplicaState.FAILURE:
            stated.append("behind")
    stated += _overload_in_words(detail)
    if split := detail.get("split"):
        stated.append(_split_in_words(split))
    if unread := detail.get("unread"):
        stated.append(f"no room for more of {', '.join(unread)}: new results stand still")
    stated += [words.format(detail[name]) for name, words in _STALLS.items() if detail.get(name)]
    if (live := detail.get("live", "running")) != "running":
        stated.append(f"live topic {live}")
    elif detail.get("live_failure"):
        worth = detail.get("live_utility")
        stated.append(
            "live topic tentative" + ("" if worth is None else f", worth {worth / 10:g} %")
        )
    if "given_up_ms" in detail:
        stated.append("results were given up: --json")
    if rejected := detail.get("rejected"):
        late = detail.get("late", 0) - detail.get("reassigned", 0)
        of_these = f" ({late} late)" if late > 0 else ""
        kept_ms = detail.get("rejected_kept_ms")
        kept = "" if kept_ms is None else f", kept for {readable_ms(kept_ms)}"
        stated.append(f"{rejected} rejected{of_these}: see tail --rejected{kept}")
    if (ends_ms := detail.get("event_time_ends_ms")) is not None:
        stated.append(f"idle: event time ends at {time_in_words(ends_ms)}")
    return "; ".join([*stated, *_of_manager(detail)])


def _of_manager(detail: dict[str, Any]) -> Iterator[str]:
    """Yield the entries that only the consistency manager reports, in words."""
    scaling = detail.get("scaling") or {}
    yield from scaling.get("notes", {}).values()
    for event in scaling.get("events", [])[-1:]:
        yield f"last move: {_move_in_words(event)}"
    if topics := detail.get("topics"):
        yield f"{len(topics)} settings of topics give less than they must: --json"
    for away in detail.get("outputs_away", []):
        left_ms, since = away["left_ms"], f"output {away['output']} away for"
        since += f" {readable_ms(away['silent_ms'])}"
        yield (
            f"{since}, keeps its place for {readable_ms(left_ms)}"
            if left_ms
            else (f"{since}, has lost its place")
        )
    if ended := detail.get("not_needed"):
        yield f"nobody needs {', '.join(ended)} any more: its number in `shards` may be 0"


def _move_in_words(event: dict[str, Any]) -> str:
    """Return a decision of the scaler with how long each phase of it took, as far as is known."""
    phases = (
        ("silent for", event["silent_ms"]),
        ("restored in", event["restore_ms"]),
        ("caught up in", event["catch_up_ms"]),
    )
    took = [f"{what} {readable_ms(ms)}" for what, ms in phases if ms is not None]
    details = ", ".join(filter(None, [event["cause"], event["outcome"], *took]))
    return f"{event['label']} from {event['source']} to {event['target']} ({details})"
