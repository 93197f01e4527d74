"""A stream whose stage runs at its owner's and at a partner's, and a reader of another owner."""

from __future__ import annotations

from contextlib import closing

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.signing import SigningKey
from anabranch.codec import boundary_records, federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.codec.signed_records import signed
from anabranch.pipeline.model import Binding, Federation, Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.stream_signers import OwnedStream, StreamSigner
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogSnapshot
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from anabranch.streams.stream_logs import open_stream
from anabranch.streams.stream_signers import PublishedSigners
from harness import sources
from harness.federations import FederationWorld

TOPIC = "north.speeds.boundaries"
OWNED = OwnedStream("north", "north", "speeds")


class SignedStream(FederationWorld):
    """North's stage, which runs at one place after the other, and billing, which reads it."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_000_000)
        super().__init__(LocalEventLog(self.clock))
        self.log.admin().create([topic_settings("boundaries", TOPIC)])
        self.bucket, self._starts = 0, 0

    def name_signer(self, signer: str, *, by: str = "north", is_withdrawn: bool = False) -> None:
        self.clock.advance(1)
        now_ms = self.clock.now_ms()
        word = StreamSigner("north", "north", "speeds", signer, is_withdrawn, now_ms)
        value = federation_records.encode(word, self.keys[by].sign(word))
        self.write(self.topics.keys("north"), value)

    def run(
        self, at: str, buckets: int = 2, key: SigningKey | None = None, *, is_honest: bool = True
    ) -> None:
        """Run the stage at a participant, which signs with its key; a dishonest one does so whether
        or not that counts.
        """
        self.clock.advance(1)
        self._starts += 1
        started = EpochStarted("0", "f", SeededEntropy(self._starts).token(), bucket_ms=100)
        sign = (key or self.keys[at]).sign_message
        judge = PublishedSigners(self.log, self.topics, OWNED) if is_honest else None
        with closing(
            BoundaryWriter(
                self.log, TOPIC, ["0"], started, self.clock, signing=Signing(sign, judge)
            )
        ) as writer:
            epoch = writer.start()
            for batch in range(buckets):
                self.bucket += 1
                ident = BatchId(f"{epoch:012d}", batch)
                writer.append(BoundaryRecord("0", epoch, ident, writer.tip(), self.bucket))

    def sum_up(self, by: str) -> None:
        """Append a log snapshot that says much more than there is."""
        with closing(BoundaryReader(self.log, TOPIC, ["0"])) as whole:
            whole.read_to_end()
            found = whole.log_state.snapshot(whole.offset_next, 0)
        assert isinstance(found, LogSnapshot)
        value, headers = boundary_records.encode(found)
        with closing(self.log.writer()) as writer:
            more = signed(TOPIC, value, self.keys[by].sign_message)
            writer.send(TopicPartition(TOPIC, 0), value, headers=[*headers, *more])
            writer.flush()

    def billing(self, **trust: object) -> Pipeline:
        binding = Binding.model_validate(
            {
                "name": "tolls",
                "pipeline": "north",
                "stream": "speeds",
                "record": sources.REPORT,
                **trust,
            }
        )
        return sources.pipeline("billing").model_copy(
            update={
                "bindings": {"tolls": binding},
                "federation": Federation(name="tolls", participant="billing"),
            }
        )

    def read(self, **trust: object) -> BoundaryReader:
        reader = open_stream(self.log, self.billing(**trust or {"participant": "north"}), "tolls")
        reader.read_to_end()
        return reader
