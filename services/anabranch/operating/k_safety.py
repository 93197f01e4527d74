"""The part of ``anabranch check`` that proves ``k_safety: 1``: that no loss of one process, disk or
broker loses results or stops them, or what falls short of that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk.checkpoint_store import folder_of
from anabranch.local.topic_creation import topics_of
from anabranch.pipeline.k_safety import protected_stages
from anabranch.protocol.control.k_safety import CopiedTopic, Restart, unsafe_brokers, unsafe_disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog, LogAdmin

_BROKERS_OWN_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
"""Topics of the cluster itself that the processes need: those of its transactions, and of groups of
consumers, by which users read outputs. A cluster makes them when they are first used.
"""


@dataclass(slots=True)
class SafetyReport:
    """Result of an examination, as sentences."""

    proven: list[str] = field(default_factory=list)
    """Losses that are survived, and those that could not be looked at, with what to do."""

    short: list[str] = field(default_factory=list)
    """Losses that are not survived, each with consequence and remedy."""


def examine(
    pipeline: Pipeline, *, store: str | None, state_dir: Path, log: EventLog | None
) -> SafetyReport:
    """Return what is known of the losses that ``pipeline``, with ``k_safety: 1``, must survive.
    The file itself was checked when it was loaded.

    Args:
        pipeline: Pipeline whose file claims it.
        store: URL of the store of checkpoints; None: there is none.
        state_dir: State directory of the nodes.
        log: Cluster whose topics are looked at; None: none is.

    Raises:
        Unavailable: the cluster does not answer.
    """
    found = SafetyReport()
    nodes = sum(1 for labels in pipeline.nodes().values() if labels)
    found.proven.append(
        f"k_safety: any one of {nodes} nodes may be lost: each stage goes on at another; any other"
        " process continues from Kafka when `up` or your service manager starts it again"
    )
    stages = protected_stages(pipeline)
    is_apart = store is not None and not on_one_disk(store, state_dir)
    if short := [each.text for each in unsafe_disk(stages, has_store=is_apart)]:
        same = f" (that at {store} is on the same disk)" if store is not None else ""
        found.short += [f"k_safety: {text}{same}" for text in short]
    else:
        kept = "checkpoints are stored on another one"
        if all(stage.restart is Restart.INPUT for stage in stages):
            kept = "each stage makes its state again from its input"
        found.proven.append(f"k_safety: the disk of the state directory may be lost: {kept}")
    if log is None:
        found.proven.append(
            "k_safety: brokers were not looked at; name one with --kafka, to compare the copies of"
            " each topic"
        )
        return found
    short, missing, seen = _brokers(pipeline, log)
    found.short += [f"k_safety: {text}" for text in short]
    if missing:
        found.short.append(
            f"k_safety: {len(missing)} topics are not there yet ({missing[0]}, ...); make them with"
            " `anabranch topics --create --replication 3`"
        )
    if not short and not missing:
        found.proven.append(
            f"k_safety: any one broker may be lost: each of {seen} topics has a copy to spare"
        )
    return found


def on_one_disk(store: str, state_dir: Path) -> bool:
    """Return whether ``store`` is a folder on the disk of the state directory, or of the folder in
    which that will be made. A store whose folder is not there is not.
    """
    folder = folder_of(store)
    if folder is None or not folder.exists():
        return False
    there = next(each for each in (state_dir, *state_dir.absolute().parents) if each.exists())
    return folder.stat().st_dev == there.stat().st_dev


def _brokers(pipeline: Pipeline, log: EventLog) -> tuple[list[str], list[str], int]:
    """Return what falls short of the topics, the topics that are not there, and the number of the
    others.
    """
    names = [topic.settings.name for topic in topics_of(pipeline)]
    admin = log.admin()
    try:
        copies = admin.copies([*names, *_BROKERS_OWN_TOPICS])
        short = [each.text for each in unsafe_brokers(_copied(admin, copies.items()))]
    finally:
        admin.close()
    return short, [name for name in names if name not in copies], len(copies)


def _copied(admin: LogAdmin, copies: Iterable[tuple[str, int]]) -> Iterable[CopiedTopic]:
    for name, count in copies:
        settings = admin.settings(name)
        yield CopiedTopic(
            name,
            count,
            int(settings.get("min.insync.replicas", "1")),
            elects_unclean=settings.get("unclean.leader.election.enable") == "true",
        )
