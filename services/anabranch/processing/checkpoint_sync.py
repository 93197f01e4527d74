"""Makes the checkpoint of a replica durable every so often, beside what the replica does.

A store that is away, full, or denies holds nothing up: inputs are kept until it is mended.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import Unavailable
from anabranch.runtime.logs import short

if TYPE_CHECKING:
    from anabranch.ports import Thread
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.runtime.service import ServiceContext, ServiceStatus

CHECKPOINT_SYNC_EVERY_MS: Final = 30_000
"""Between two syncs of a checkpoint: blocks are trimmed only below what is synced, so this bounds
what is kept for a restart after a loss of power; a sync costs the disk whatever was written since
the last.
"""


class CheckpointSync:
    """For one replica; the first time is one interval from now."""

    def __init__(
        self, context: ServiceContext, status: ServiceStatus, store: Callable[[str], bool]
    ) -> None:
        """``store``: writes a directory to the store of checkpoints."""
        self._context = context
        self._status = status
        self._store = store
        self._begun_ms = context.clock.monotonic_ms()
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def look(self, runner: ReplicaRunner) -> None:
        """Begin a sync when it is time to, and the last one is over.

        Raises:
            Fenced: a newer process replaced this one, and has removed the directory.
            OSError: the disk failed the last sync, or lost the directory.
        """
        if self._error is not None:
            # The log first: a replaced process meets its directory removed.
            runner.check_epoch()
            raise self._error
        now_ms = self._context.clock.monotonic_ms()
        if now_ms - self._begun_ms < CHECKPOINT_SYNC_EVERY_MS or (
            self._thread is not None and self._thread.is_alive()
        ):
            return
        self._begun_ms = now_ms
        self._thread = self._context.threads.begin("sync", partial(self._sync, runner))

    def _sync(self, runner: ReplicaRunner) -> None:
        try:
            runner.sync(self._store)
        except Unavailable as error:
            why = short(str(error))
            self._context.logger.warning(
                "checkpoint_not_stored", stage=self._context.settings.name, error=why
            )
            self._status.detail["not_stored"] = why
        except BaseException as error:  # noqa: BLE001 - raised by ``look``: it ends this replica, not its node
            self._error = error
        else:
            self._status.detail.pop("not_stored", None)
