"""Participants whose signatures count under the records of a published stream.

Theory of operation. A stream has one owner. Its stage may run at another participant for a while: a
partner to which it is sold, or the one that offers it. The participant that runs it signs with a
key of its own, since no private key leaves its participant. So the owner states in its log of keys,
signed, which participants may sign which of its streams, and withdraws that there. A record is
judged by the time at which the broker appended it, as a signature in a contract is. So all readers
of the logs, now or years later, judge it alike, and chain the same records. A
log snapshot stands for all records before it. The owner's manager writes it, and only the owner's
counts.

Invariants:
    FJ1  the owner's records count while its key does (FG1), whichever others may sign.
    FJ2  another participant's records count from the owner's statement until its withdrawal, and
        while that participant's key does.
    FJ3  a statement counts only if it is the owner's, about its own streams; one that is repeated,
        or older than the last about the same stream and signer, changes nothing.
    FJ4  a log snapshot is the owner's alone.
    FJ5  later records in the logs of keys change no judgement about earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from anabranch.protocol.federation.contract_log import WORD_SKEW_MS, VerifyAt
from anabranch.protocol.federation.statements import Signature, is_signed

SIGNER_TERMS_MAX: Final = 1_000
"""Maximum number of terms of one participant: bounds what a foreign log can make a reader hold."""


@dataclass(frozen=True, slots=True)
class StreamSigner:
    """Statement of an owner that another participant may, or may no longer, sign records of a
    stream.
    """

    SIGNED_AS: ClassVar[str] = "stream_signer"

    participant: str
    """The owner."""
    pipeline: str
    stream: str
    signer: str
    is_withdrawn: bool
    at_ms: int
    """Time at which the owner wrote it, by the owner's clock, in ms. It grows between statements
    about the same stream and participant.
    """


@dataclass(frozen=True, slots=True)
class OwnedStream:
    """Stream and its owner, as a reader's pipeline file names them."""

    owner: str
    pipeline: str
    stream: str


@dataclass(frozen=True, slots=True)
class _Term:
    """Time for which a participant may sign a stream, by the logs' times."""

    from_ms: int
    until_ms: int | None = None


class StreamSigners:
    """Log state of the owners' statements about signers in all logs of keys. Not thread-safe. A
    replay restores it after a crash.
    """

    def __init__(self, verify: VerifyAt) -> None:
        self._verify = verify
        self._terms: dict[OwnedStream, dict[str, list[_Term]]] = {}
        self._newest_ms: dict[tuple[OwnedStream, str], int] = {}
        self._count: dict[str, int] = {}

    def add(
        self, participant: str, word: StreamSigner, signature: Signature, appended_ms: int
    ) -> str:
        """Count a word in the log of ``participant``, in its order. Return why it does not count,
        or an empty text.
        """
        if word.participant != participant:
            return "a stream of somebody else"
        if not is_signed(
            word, participant, signature, lambda by, what: self._verify(by, what, appended_ms)
        ):
            return "not signed by its owner"
        if abs(word.at_ms - appended_ms) > WORD_SKEW_MS:
            return "out of its time"
        stream = OwnedStream(participant, word.pipeline, word.stream)
        if word.at_ms <= self._newest_ms.get((stream, word.signer), -1):
            return "known already"
        terms = self._terms.get(stream, {}).get(word.signer, [])
        is_named = bool(terms) and terms[-1].until_ms is None
        if word.is_withdrawn is not is_named:
            return "withdrawn already" if word.is_withdrawn else "named already"
        if not word.is_withdrawn and self._count.get(participant, 0) >= SIGNER_TERMS_MAX:
            return "more signers than a participant has"
        self._newest_ms[stream, word.signer] = word.at_ms
        if word.is_withdrawn:
            terms[-1] = replace(terms[-1], until_ms=appended_ms)
        else:
            self._count[participant] = self._count.get(participant, 0) + 1
            named = self._terms.setdefault(stream, {})
            named.setdefault(word.signer, []).append(_Term(appended_ms))
        return ""

    def forget(self, owner: str) -> None:
        """Forget all statements of an owner: some of them can no longer be read, and one of these
        may have withdrawn a signer.
        """
        self._terms = {
            stream: named for stream, named in self._terms.items() if stream.owner != owner
        }
        self._newest_ms = {key: ms for key, ms in self._newest_ms.items() if key[0].owner != owner}
        self._count.pop(owner, None)

    def may_sign(self, stream: OwnedStream, participant: str, at_ms: int) -> bool:
        """Return whether records of this participant count at this time, if its key does (FJ1,
        FJ2).
        """
        return participant == stream.owner or participant in self.named(stream, at_ms)

    def named(self, stream: OwnedStream, at_ms: int) -> list[str]:
        """Return the participants that may sign besides the owner at this time."""
        found = self._terms.get(stream, {})
        return sorted(
            signer
            for signer, terms in found.items()
            if any(
                term.from_ms <= at_ms and (term.until_ms is None or at_ms < term.until_ms)
                for term in terms
            )
        )

    def ever_named(self, stream: OwnedStream) -> list[str]:
        """Return the participants whose records may count, besides the owner's, at any time."""
        return sorted(self._terms.get(stream, {}))

    def streams(self, owner: str, pipeline: str) -> list[str]:
        """Return the streams of a pipeline with statements of its owner."""
        return sorted(
            each.stream for each in self._terms if (each.owner, each.pipeline) == (owner, pipeline)
        )

    def why_not(
        self,
        stream: OwnedStream,
        signature: Signature,
        message: bytes,
        at_ms: int,
        *,
        is_snapshot: bool,
    ) -> str:
        """Return why a record of ``stream`` does not count that its log took at this time; empty:
        it does.
        """
        if is_snapshot and signature.participant != stream.owner:
            return "a log snapshot is its owner's alone"
        if not self.may_sign(stream, signature.participant, at_ms):
            return "its signer is not named by its owner"
        if not self._verify(signature, message, at_ms):
            return "its signature is none of a key that counted then"
        return ""


def wanted_words(
    owner: str,
    pipeline: str,
    signers: dict[str, list[str]],
    current: StreamSigners,
    now_ms: int,
) -> list[StreamSigner]:
    """Return the statements by which those of ``signers`` (stream -> participants) and no others
    may sign the owner's streams from now on.
    """
    found = []
    for stream in sorted({*signers, *current.streams(owner, pipeline)}):
        named = set(current.named(OwnedStream(owner, pipeline, stream), now_ms))
        wanted = set(signers.get(stream, ()))
        found += [
            StreamSigner(owner, pipeline, stream, signer, signer in named, now_ms)
            for signer in sorted(wanted ^ named)
        ]
    return found
