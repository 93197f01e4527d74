"""Periodic sync of a replica's checkpoint to disk and to the checkpoint store, in the background.

A store that is unreachable, full or denies access does not delay the replica: its inputs' blocks
are retained until the store works again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.process.logging_setup import short
from anabranch.protocol.errors import Unavailable

if TYPE_CHECKING:
    from anabranch.ports import Thread
    from anabranch.process.frame import ServiceContext, ServiceStatus
    from anabranch.processing.replica import ReplicaRunner


LONG_SYNC_MS: Final = 60_000
"""Duration of one sync, in ms, from which it is reported. Longer than the upload of a large
checkpoint takes where the store keeps up.
"""


class CheckpointSync:
    """Background sync of one replica's checkpoint. The first sync starts after one interval."""

    def __init__(
        self,
        context: ServiceContext,
        status: ServiceStatus,
        store: Callable[[str], bool],
        interval_ms: Callable[[bool], int],
    ) -> None:
        """Prepare the first sync.

        Args:
            context: The context of the replica.
            status: The status of the replica, for errors.
            store: Function that writes a directory to the checkpoint store.
            interval_ms: Function (whether the last sync failed) that returns the interval between
                the beginnings of two syncs, in ms.
        """
        self._interval_ms = interval_ms
        self._context = context
        self._status = status
        self._store = store
        self._begun_ms = context.clock.monotonic_ms()
        self._thread: Thread | None = None
        self._error: BaseException | None = None

    def sync_if_due(self, runner: ReplicaRunner) -> None:
        """Start a sync if one is due and the previous one has ended.

        Raises:
            Fenced: a newer process replaced this one and removed the directory.
            OSError: the last sync failed, or the directory is lost.
        """
        if self._error is not None:
            # The log first: where a newer process removed the directory, the error is Fenced.
            runner.check_epoch()
            raise self._error
        now_ms = self._context.clock.monotonic_ms()
        if self._thread is not None and self._thread.is_alive():
            self._report_silence(now_ms - self._begun_ms)
            return
        if now_ms - self._begun_ms < self._interval_ms("not_stored" in self._status.detail):
            return
        self._begun_ms = now_ms
        self._thread = self._context.threads.begin("sync", partial(self._sync, runner))

    def _report_silence(self, duration_ms: int) -> None:
        """Report a sync that has lasted for ``duration_ms``, if that is long: a disk or a store
        that hangs raises no error. A sync that ends after all takes the report back.
        """
        if duration_ms < LONG_SYNC_MS or "not_stored" in self._status.detail:
            return
        why = (
            f"a checkpoint is being written for more than {LONG_SYNC_MS // 1_000} s: the disk or"
            " the store of checkpoints is slow, or does not answer"
        )
        self._context.logger.warning(
            "checkpoint_not_stored", stage=self._context.settings.name, error=why
        )
        self._status.detail["not_stored"] = why

    def _sync(self, runner: ReplicaRunner) -> None:
        """Sync the checkpoint, as the body of the background thread. ``sync_if_due`` raises an
        unexpected error.
        """
        try:
            runner.sync(self._store)
        except Unavailable as error:
            why = short(str(error))
            self._context.logger.warning(
                "checkpoint_not_stored", stage=self._context.settings.name, error=why
            )
            self._status.detail["not_stored"] = why
        except BaseException as error:  # noqa: BLE001 - raised by ``sync_if_due``: it ends this replica, not its node
            self._error = error
        else:
            self._status.detail.pop("not_stored", None)
