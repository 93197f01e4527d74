"""Records of an earlier life of an output, in its topics before a run begins. They have ids that
this life will use, other values, and for an upsert view a key of which this life has no row.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from anabranch.codec.catalog import BROKERS_OWN, topic_settings
from anabranch.codec.partitions import partition_of
from anabranch.ports import EventLog, LogWriter, TopicPartition
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.identifiers import RecordId
from simulation import workload
from simulation.options import NAME, Options, OutputOptions

ROWS: Final = 4
"""Number of ids of each bucket that the earlier life has used."""
GONE_KEY: Final = 10_000
"""Key of which this life has no row."""
_HEADER: Final = "anabranch-origin"


def is_earlier(headers: dict[str, bytes], lives: Collection[str]) -> bool:
    """Return whether a record with these headers names an origin in none of ``lives``, the
    identities of the topics that there are.
    """
    origin = headers.get(_HEADER)
    return origin is not None and Origin.parse(origin.decode()).life not in lives


def write(log: EventLog, options: Options) -> None:
    """Create the topics of the outputs, and fill them as an earlier life would have left them."""
    admin, writer = log.admin(), log.writer()
    for output in options.outputs:
        specs = [topic_settings("output", output.name, output.partitions, BROKERS_OWN)]
        if output.is_live:
            kind = "live_upsert" if output.is_upsert else "live"
            specs.append(topic_settings(kind, output.live_topic, output.partitions, BROKERS_OWN))
        if options.output_bytes_max is not None:
            del specs[0]  # it is there, with its bound
        admin.create(specs)
        _fill(writer, options, output)
    writer.flush()
    writer.close()
    admin.close()


def _fill(writer: LogWriter, options: Options, output: OutputOptions) -> None:
    origin = (_HEADER, Origin(NAME, output.name, "earlier").header)
    last = workload.last_bucket(options)
    for bucket in range(last - options.buckets - 2, last + 3):
        for position in range(ROWS):
            number = GONE_KEY if position == ROWS - 1 else position
            key, ident = b'{"key":%d}' % number, RecordId(bucket, position)
            value = b'{"id":%d,"key":%d,"v":0}' % (position, number)
            partition = partition_of(key, ident, output.partitions)
            headers = [
                ("anabranch-id", str(ident).encode()),
                ("anabranch-event-time", b"%d" % (bucket * options.bucket_ms)),
                origin,
            ]
            if number != GONE_KEY or options.output_bytes_max is None:  # else it is too large
                writer.send(TopicPartition(output.name, partition), value, key, headers)
            if output.is_live:
                live = [("anabranch-kind", b"insertion"), *headers]
                writer.send(TopicPartition(output.live_topic, partition), value, key, live)
    if output.is_live and not output.is_upsert:
        boundary = b'{"kind":"boundary","stable":%d,"stable_ms":0,"shown":0,"sequence":1000}' % last
        for partition in range(output.partitions):
            headers = [("anabranch-kind", b"boundary"), origin]
            writer.send(TopicPartition(output.live_topic, partition), boundary, None, headers)
