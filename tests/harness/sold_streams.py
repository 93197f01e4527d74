"""A stream that one participant pays another for, on any log: its boundary log, which the sender's
stage writes, and the contract's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from anabranch.adapters.signing import SigningKey
from anabranch.codec import boundary_records, federation_records
from anabranch.codec.signed_records import signed
from anabranch.pipeline.model import Binding, Federation, Pipeline
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import Clock, Entropy, EventLog, TopicPartition
from anabranch.protocol.federation.contract_log import StreamLog
from anabranch.protocol.federation.statements import Signature, Statement
from anabranch.protocol.federation.stream_contracts import StreamContract
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, LogSnapshot, Part
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter, Signing
from harness import outputs, sources
from harness.contents import content
from harness.federations import FederationWorld

ENTITY = outputs.STAGE
CONTRACT_ID = "north-billing"


class SoldStream(FederationWorld):
    """Stage ``totals`` of north, and billing, which reads it and pays."""

    def __init__(
        self,
        log: EventLog,
        clock: Clock,
        entropy: Entropy,
        federation: str = "tolls",
        pipeline: str = "north",
        **terms: Any,
    ) -> None:
        super().__init__(log, federation)
        self.clock = clock
        self._entropy = entropy
        self.pipeline_name = pipeline
        self.topic = TopicNames(pipeline).boundaries(ENTITY)
        self.keys["billing"] = SigningKey.generate("billing", "1")
        self.publish(self.keys["billing"])
        self.make("contract", self.topics.contract(CONTRACT_ID))
        defaults = {
            "stream": ENTITY,
            "pipeline": pipeline,
            "settle_ms": 1_000,
            "delay_ms_max": 300,
        }
        self.text: StreamContract = content(**{**defaults, **terms})
        self._writer: BoundaryWriter | None = None
        self._batch = 0

    def forge(self, statement: Statement, signature: Signature) -> None:
        """In the log of the contract for the stream, unless the statement's own is open."""
        name = getattr(statement, "contract_id", "")
        topic = self.topics.contract(name if name in self._contracts else CONTRACT_ID)
        self.write(topic, federation_records.encode(statement, signature))

    def agree(self) -> None:
        """Both sign."""
        self.say("north", self.text)
        self.say("billing", self.text)

    # ---------------------------------------------------------------- the stream

    def make_stream(self) -> None:
        self.make("boundaries", self.topic)

    def begin(self, *, key: SigningKey | None = None, bucket_ms: int = 100) -> None:
        """Begin a process of the stage; it signs with this key, else with north's."""
        sign = (key or self.keys["north"]).sign_message
        self._writer = BoundaryWriter(
            self.log,
            self.topic,
            ["0"],
            EpochStarted("0", "f", self._entropy.token(), bucket_ms=bucket_ms),
            self.clock,
            signing=Signing(sign),
        )
        self._writer.start()
        self._batch = 0

    def close_up_to(self, bucket: int, rows: Mapping[int, int] | None = None) -> None:
        """Write a batch of the stage: this many rows of these buckets, closed up to ``bucket``."""
        writer = self._writer
        assert writer is not None, "begun"
        parts = tuple(
            Part(each, 0, f"a{each}", 1, each, each + 1, count, 7)
            for each, count in (rows or {}).items()
        )
        ident = BatchId(f"{writer.epoch:012d}", self._batch)
        self._batch += 1
        writer.append(BoundaryRecord("0", writer.epoch, ident, writer.tip(), bucket, parts))

    def stop_stage(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def append_signed(self, by: str, *entries: BoundaryRecord | LogSnapshot) -> None:
        """Whatever it says, and whether or not that counts."""
        with closing(self.log.writer()) as writer:
            for entry in entries:
                value, headers = boundary_records.encode(entry)
                more = signed(self.topic, value, self.keys[by].sign_message)
                writer.send(TopicPartition(self.topic, 0), value, headers=[*headers, *more])
            writer.flush()

    def trim(self) -> int:
        """North's manager leaves a log snapshot and deletes what is below; the bucket up to which
        all was stable.
        """
        with closing(BoundaryReader(self.log, self.topic, ["0"])) as whole:
            whole.read_to_end()
            upto = whole.log_state.upto
            found = whole.log_state.snapshot(whole.offset_next, upto)
            cut = whole.offset_next
        self.append_signed("north", found)
        with closing(self.log.admin()) as admin:
            admin.delete_before({TopicPartition(self.topic, 0): cut})
        return upto

    # ---------------------------------------------------------------- who looks

    def pipeline_of(self, participant: str) -> Pipeline:
        """Its pipeline file."""
        federation = Federation(
            name=self.topics.federation, participant=participant, auditor="auditor"
        )
        if participant == "north":
            changes: dict[str, Any] = {"publish_ms": {ENTITY: 1_000}}
            made = outputs.pipeline(self.pipeline_name)
        else:
            binding = Binding(
                name="tolls",
                pipeline=self.pipeline_name,
                stream=ENTITY,
                record=sources.REPORT,
                participant="north",
            )
            made, changes = outputs.pipeline(participant), {"bindings": {"tolls": binding}}
        return made.model_copy(update={"federation": federation, **changes})

    def found(self) -> StreamLog:
        """Return the contract as a reader of its log finds it now."""
        with closing(self.reader()) as reader:
            reader.read_to_end()
            return reader.streams[CONTRACT_ID]
