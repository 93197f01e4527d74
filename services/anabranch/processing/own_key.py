"""Signing key of a replica's node, for records that pipelines of other owners read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.adapters.key_files import signer
from anabranch.protocol.errors import Unavailable
from anabranch.streams.boundary_writer import Signing
from anabranch.streams.stream_logs import signers_of

if TYPE_CHECKING:
    from anabranch.process.frame import ServiceContext, ServiceStatus
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.streams.stream_signers import PublishedSigners

_SIGNER_CHECK_S: Final = 1.0
"""Interval between checks whether this replica's signatures are accepted yet, in seconds."""


class OwnKey:
    """Signing key of one replica, if its records are signed, and the published list of keys that
    readers accept.
    """

    def __init__(self, context: ServiceContext, own: ReplicaIdentity) -> None:
        """Read the key file; no broker is contacted yet."""
        self._context, self._own = context, own
        self._sign = signer(context.pipeline, own.stage_name, own.node_owner)
        self._signers: PublishedSigners | None = None

    @property
    def signing(self) -> Signing | None:
        """Signature function and judge for the writer of the stage's log; None if its records are
        not signed.
        """
        return None if self._sign is None else Signing(self._sign, self._signers)

    def await_accepted(self, status: ServiceStatus) -> bool:
        """Wait until readers of other owners accept this node's signatures. They would ignore
        records signed before, and every record that continues those. Return False if told to stop.
        """
        context, own = self._context, self._own
        federation, sign = context.pipeline.federation, self._sign
        if federation is None or sign is None:
            return True
        message, reported = b"anabranch", ""
        while not context.stopping.is_set():
            try:
                if self._signers is None:
                    self._signers = signers_of(context.log, context.pipeline, own.stage_name)
                self._signers.refresh()
                why = self._signers.why_not(
                    sign(message), message, context.clock.now_ms(), is_snapshot=False
                )
            except Unavailable as error:
                why = str(error)
            if not why:
                status.state, status.waiting_for = "starting", None
                return True
            if why != reported:
                context.logger.warning("waiting_to_be_named", stage=own.label, why=why)
            reported = why
            status.state = "waiting"
            status.waiting_for = (
                f"{own.node_owner} to publish its key (anabranch keys publish), and"
                f" {federation.participant} to name it (anabranch keys signers): {why}"
            )
            context.stopping.wait(_SIGNER_CHECK_S)
        return False

    def close(self) -> None:
        """Close the list of accepted keys. Idempotent."""
        if self._signers is not None:
            self._signers.close()
