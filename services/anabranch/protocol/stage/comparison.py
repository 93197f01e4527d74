"""Is what a process makes again of its input what stands in the log?

Theory of operation. A stage with ``upstream_backup`` that lost its disk makes its last results again
(``protocol.stage.beginning``). Those that must be whole are closed already, so they must equal the
log, bucket by bucket. Otherwise the state horizon that its author promised is wrong, and the process
ends before it writes anything new. Results of another participant's node may be wrong for another
reason, and the owner cannot repair them: they stand, as the first record in the log does, and are
reported. Until the process has closed a new bucket the comparison is *open*, and the log says so: a
process that begins then does not continue from a checkpoint of which half was never compared, but
begins as the one before did.

Invariants:
    CM1 no record that closes a new bucket is let through unless every bucket that must be whole was
        the same as before, by whichever process: while that is open, each begins anew. A bucket
        that was made on a partner's node, by what the log says, may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, Origin


@dataclass(frozen=True, slots=True)
class PartnerWrong:
    """A bucket that a partner's node made is not what was made of the same input at home."""

    stage: str
    bucket: int
    node: str


class Comparison:
    """Of one process, which is the only writer of its stream."""

    def __init__(
        self,
        stage: str,
        horizon: int,
        width_ms: int,
        is_partners: Callable[[str], bool] = lambda _node: False,
    ) -> None:
        """``horizon``: of the stage's state, in buckets. ``is_partners``: whether another
        participant runs a node.
        """
        self._stage = stage
        self._horizon = horizon
        self._width_ms = width_ms
        self._is_partners = is_partners
        self._made_on = Origin()
        self._expected: dict[int, tuple[int, int]] = {}
        self._made: dict[int, tuple[int, int]] = {}
        self._compared = self.upto = 0
        """Buckets up to ``_compared`` were compared, or need not be; those up to ``upto`` are."""

    def begin(self, log_state: LogState, replica: str, after: int) -> None:
        """The process begins without a checkpoint. Of a function that was changed on the way only
        what it made from its own state is compared.

        Args:
            log_state: The stage's own stream; the process's epoch has begun.
            replica: The process writes as this one.
            after: The bucket after which it begins.
        """
        closed, origin = log_state.closed(replica), log_state.origin(replica)
        whole_from = max(
            begun + self._horizon if begun else 0 for begun in (after, origin.made_after)
        )
        if (
            origin.made_by in ("", log_state.fingerprint(replica))
            and whole_from < closed <= log_state.upto
        ):
            self._compared, self.upto = whole_from, closed
            self._made_on = origin
            self._expected = {
                bucket: contents(parts)
                for bucket, _, parts in log_state.stable(whole_from + 1, closed)
            }

    def check(self, record: BoundaryRecord) -> list[PartnerWrong]:
        """``record`` is about to be appended. What is found of partners.

        Raises:
            StageFunctionError: a bucket was made again and is not the same: the horizon is too
                short, or the function not deterministic.
        """
        found = list[PartnerWrong]()
        if self._compared >= self.upto or record.kind is not BoundaryKind.STABLE:
            return found
        for part in record.parts:
            rows, digest = self._made.get(part.bucket, (0, 0))
            self._made[part.bucket] = rows + part.rows, (digest + part.digest) % 2**64
        upto = min(record.closed, self.upto)
        for bucket in sorted({*self._expected, *self._made}):
            if self._compared < bucket <= upto and self._made.get(
                bucket, (0, 0)
            ) != self._expected.get(bucket, (0, 0)):
                node = self._made_on.node_of(bucket)
                if self._is_partners(node):
                    found.append(PartnerWrong(self._stage, bucket, node))
                    continue
                message = (
                    f"stage {self._stage}: bucket {bucket}, made again from"
                    f" {2 * self._horizon * self._width_ms} ms of input, is not what it was: give"
                    " the stage a longer state_horizon, or ha: passive; or its function does not"
                    " give the same for the same input"
                )
                raise StageFunctionError(message)
        self._compared = max(self._compared, upto)
        if self._compared >= self.upto:
            self._expected, self._made = {}, {}
        return found
