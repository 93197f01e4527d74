"""``anabranch reset``: delete the topics, state and index of a pipeline, as if it had never run.

After a crash some of it is deleted; the same command deletes the rest.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk import checkpoint_store, state_format
from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.local import drill_links, state_file
from anabranch.local.topic_creation import topics_of
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import EventLog, Index

_STATE: Final = (
    "processing",
    "scratch",
    "run",
    "logs",
    drill_links.DIRECTORY_NAME,
    "proxy.log",
    "supervisor.json",
    state_format.FILE_NAME,
)
"""Names of the pipeline's files and folders in the state directory."""
_WITH_SERVERS: Final = ("kafka", "redis", "auditor")
"""Folders of the embedded servers, and of the auditor's numbers: contracts ask for these as long as
their topics are there. Deleting the broker's deletes the user's topics on it, too.
"""


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """List of what a reset deletes."""

    topics: tuple[str, ...]
    """Topics of a given broker; none of an embedded one, which is deleted whole."""
    paths: tuple[Path, ...]
    """Files and folders in the state directory that the reset deletes."""
    embedded: bool
    """Whether the broker is this deployment's own, and is deleted whole."""
    pipeline: str = ""
    """Name of the pipeline, whose folder in the store of checkpoints is deleted."""
    store: str | None = None
    """Address of the store of checkpoints; None: it holds none of the pipeline's."""

    def in_words(self) -> list[str]:
        """Return one line per deletion, for the user who confirms them."""
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
    " are not deleted: checkpoints there are never used again, and each is deleted when its replica"
    " starts"
)
"""Note for the user about checkpoints that a reset does not delete. They do no harm: a checkpoint
records the ids of its topics, and topics that are created anew have other ids.
"""


def plan(
    pipeline: Pipeline, state_dir: Path, log: EventLog | None, store: str | None = None
) -> ResetPlan:
    """Return what a reset would delete: internal topics, output topics, local and stored state.

    Input topics are kept, except on an embedded broker.

    Args:
        pipeline: The pipeline to reset.
        state_dir: Its state directory.
        log: The cluster on which it ran; None: an embedded broker.
        store: Address of the store of checkpoints; None: there is none.

    Raises:
        ConfigurationError: the pipeline runs, or ``store`` is not the address of a store.
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
            existing = admin.partitions(wanted)
        finally:
            admin.close()
        topics = [name for name in wanted if name in existing]
    names = _STATE if log is not None else (*_STATE, *_WITH_SERVERS)
    return ResetPlan(
        tuple(topics),
        tuple(state_dir / name for name in names if (state_dir / name).exists()),
        log is None,
        pipeline.name,
        store if store is not None and checkpoint_store.is_stored(store, pipeline.name) else None,
    )


def carry_out(
    plan: ResetPlan,
    state_dir: Path,
    log: EventLog | None,
    index: Index | None,
    prefix: str,
    say: Callable[[str], None],
    progress: Progress = unwatched,
) -> None:
    """Delete what ``plan`` lists, and the keys of ``index`` that begin with ``prefix``.

    ``say`` prints a line. ``progress`` receives the numbers of deleted keys and folders.

    Raises:
        ConfigurationError: the pipeline was started meanwhile.
        Unavailable: the broker, the index or the store does not answer; some may be deleted.
    """
    # Held to the end: a supervisor that started now would find half of its state.
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
