"""Places that good seeds reach: what was never reached was never tried. Rows of the tables are counted where they decide."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.protocol import live_delivery, switching
from anabranch.protocol.staggering import Why
from simulation import faults
from simulation.history import History

FOLD_REASONS = (
    "epoch",
    "accepted",
    "tentative",
    "fenced",
    "known",
    "off_chain",
    "older_branch",
    "no_base",
    "unknown_writer",
)

EXPECTED: tuple[str, ...] = (
    *(f"fault {kind}" for kind in sorted({*faults.PROCESS_KINDS, *faults.WRITER_KINDS, *faults.DELIVERY_KINDS, *faults.REPLICA_KINDS, *faults.SOURCE_KINDS, *faults.INDEX_KINDS, *faults.AIMED_KINDS} - {"commit twice"})),
    *(f"write {kind}" for kind in ("lost", "late", "applied", "part", "refused")),
    *(f"commit {kind}" for kind in ("lost", "applied", "torn")),
    *(f"switching row {row.number}" for row in (*switching.TABLE, switching.NOBODY)),
    *(f"live row {row.number}" for row in live_delivery.TABLE),
    *(f"gate {why.name}" for why in Why),
    *(f"fold {reason}" for reason in FOLD_REASONS),
    *(f"replica {state}" for state in ("stable", "up_failure", "stabilization")),
    *("replica forked", "replica forked again", "branch dropped", "tentative batch", "task run again", "logged batch run again"),
    *("checkpoint tail lost", "directory removed under a process", "blocks trimmed", "sibling copied", "late arrival", "transaction torn", "transaction timed out"),
    *("question without answer", "log outcome_unknown", "log live_delayed", "log index_unavailable", "log blocks_missing", "log take_over_delayed"),
    *("live undo", "live rec_done", "live failure", "live shown again", "live bound judged"),
    *(f"end {service} Fenced" for service in ("ingestion", "processing", "delivery")),
    *(f"end {service} Unavailable" for service in ("ingestion", "processing")),
)  # fmt: skip


@contextlib.contextmanager
def counted(history: History) -> Iterator[None]:
    """Within it, every row of a table that decides is counted."""
    tables: tuple[tuple[Any, str, Callable[[Any], str]], ...] = (
        (switching, "decide", lambda answer: f"switching row {answer[0].number}"),
        (live_delivery, "decide", lambda answer: f"live row {answer.number}"),
    )
    originals = [vars(module)[name] for module, name, _ in tables]

    def counting(original: Callable[..., Any], named: Callable[[Any], str]) -> Callable[..., Any]:
        def decide(*arguments: Any, **named_arguments: Any) -> Any:
            answer = original(*arguments, **named_arguments)
            history.reached(named(answer))
            return answer

        return decide

    for (module, name, named), original in zip(tables, originals, strict=True):
        vars(module)[name] = counting(original, named)
    try:
        yield
    finally:
        for (module, name, _), original in zip(tables, originals, strict=True):
            vars(module)[name] = original
