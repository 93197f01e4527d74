"""``anabranch reset``: a pipeline as if it had never run.

What holds after a crash: what was deleted is gone, the rest is there; the same command goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk import checkpoint_store, state_format
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.drills import links
from anabranch.protocol.errors import ConfigurationError
from anabranch.up import state_file
from anabranch.up.topics import topics_of

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog, Index

_STATE: Final = (
    "processing",
    "scratch",
    "run",
    "logs",
    links.DIRECTORY_NAME,
    "proxy.log",
    "supervisor.json",
    state_format.FILE_NAME,
)
_SERVERS: Final = ("kafka", "redis")
"""Folders of the embedded servers: with the broker's the users' own topics on it go, too."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be deleted."""

    topics: tuple[str, ...]
    paths: tuple[Path, ...]
    embedded: bool
    """The broker is this deployment's own, and goes whole."""
    pipeline: str = ""
    """Name of the folder that goes in the store of checkpoints."""
    store: str | None = None
    """Address of the store of checkpoints, where it holds some of the pipeline."""

    def in_words(self) -> list[str]:
        """For the person who confirms."""
        found = [f"delete topic {topic}" for topic in self.topics]
        found += [
            f"delete {path}"
            + (
                " (the embedded broker with all its topics, inputs too)"
                if path.name == "kafka"
                else ""
            )
            for path in self.paths
        ]
        if self.store is not None:
            found.append(f"delete the checkpoints of {self.pipeline} in {self.store}")
        return found


ELSEWHERE: Final = (
    "state directories of other machines, and stores that ANABRANCH_CHECKPOINT_STORE does not name,"
    " are not reached: checkpoints there never count again, and each goes when its replica starts"
)
"""What a reset leaves: the identity of the topics that are gone makes it harmless."""


def plan(
    pipeline: Pipeline, state_dir: Path, log: EventLog | None, store: str | None = None
) -> Plan:
    """What belongs to the pipeline: its internal topics, its outputs and its state. Inputs only
    where the broker is embedded.

    ``log``: the cluster that it ran on; None: an embedded broker. ``store``: of checkpoints; None:
    there is none.

    Raises:
        ConfigurationError: it runs, or ``store`` is no address of one.
        Unavailable: the broker or the store does not answer.
    """
    if (holder := state_file.Lock(state_dir).holder()) is not None:
        raise ConfigurationError(
            f"the deployment in {state_dir} runs (process {holder}): stop it first, `anabranch"
            " down`"
        )
    topics: list[str] = []
    if log is not None:
        wanted = [topic.settings.name for topic in topics_of(pipeline) if topic.owner != "input"]
        admin = log.admin()
        try:
            there = admin.partitions(wanted)
        finally:
            admin.close()
        topics = [name for name in wanted if name in there]
    names = _STATE if log is not None else (*_STATE, *_SERVERS)
    return Plan(
        tuple(topics),
        tuple(state_dir / name for name in names if (state_dir / name).exists()),
        log is None,
        pipeline.name,
        store if store is not None and checkpoint_store.is_stored(store, pipeline.name) else None,
    )


def carry_out(
    plan: Plan,
    state_dir: Path,
    log: EventLog | None,
    index: Index | None,
    prefix: str,
    say: Callable[[str], None],
    progress: Progress = unwatched,
) -> None:
    """Delete it. ``index``: its keys below ``prefix`` go, too. ``progress`` gets how many keys and
    folders are gone.

    Raises:
        ConfigurationError: somebody started it meanwhile.
        Unavailable: the broker, the index or the store does not answer; some may be deleted.
    """
    lock = state_file.Lock(state_dir)
    lock.acquire()
    try:
        if log is not None and plan.topics:
            admin = log.admin()
            try:
                admin.delete_topics(plan.topics)
            finally:
                admin.close()
            say(f"deleted {len(plan.topics)} topics")
        if index is not None:
            keys = index.keys(prefix)
            for number, key in enumerate(keys):
                progress("keys of Redis", number, len(keys))
                index.delete(key)
            say(f"deleted {len(keys)} keys of Redis")
        if plan.store is not None:
            checkpoint_store.delete_stored(plan.store, plan.pipeline)
            say(f"deleted the checkpoints of {plan.pipeline} in {plan.store}")
        for number, path in enumerate(plan.paths):
            progress("folders and files", number, len(plan.paths))
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            say(f"deleted {path}")
    finally:
        lock.release()
