"""Heartbeats, alarms and delivery progress as bytes: Avro single objects, read as strictly as the boundary records."""

from __future__ import annotations

from typing import Any

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.control import Alarm, ControlRecord, DeliveryProgress, Heartbeat
from anabranch.protocol.errors import RemoteProtocolError


def encode(entry: ControlRecord) -> bytes:
    """The value of a control record. Texts of an alarm are cut to fit.

    Raises:
        LocalProtocolError: it does not fit its schema or its limit: a bug here.
    """
    name: str
    value: dict[str, Any]
    if isinstance(entry, Heartbeat):
        name = "heartbeat"
        value = {
            "service": entry.service,
            "name": entry.name,
            "replica": entry.replica,
            "epoch": entry.epoch,
            "state": entry.state,
            "bucket": entry.bucket,
            "written_ms": entry.written_ms,
        }
    elif isinstance(entry, DeliveryProgress):
        name = "delivery_progress"
        value = {
            "output": entry.output,
            "first_bucket": entry.first_bucket,
            "last_bucket": entry.last_bucket,
            "positions": [{"partition": partition, "offset": offset} for partition, offset in entry.positions],
            "written_ms": entry.written_ms,
            "first_position": entry.first_position,
            "next_position": entry.next_position,
        }
    else:
        name = "alarm"
        text = entry.text[: limits.ALARM_CHARACTERS_MAX]
        value = {"kind": entry.kind, "stream": entry.stream, "bucket": entry.bucket, "text": text, "written_ms": entry.written_ms}
    return single_object.write(catalog().newest(name), value, limits.CONTROL_BYTES_MAX)


def decode(value: bytes | None) -> ControlRecord:
    """The control record in ``value``.

    Raises:
        RemoteProtocolError: it is none, torn, unknown or too large.
    """
    record, fields = single_object.read(value, limits.CONTROL_BYTES_MAX, limits.CONTROL_ITEMS_MAX)
    kinds = {"heartbeat": Heartbeat, "delivery_progress": DeliveryProgress, "alarm": Alarm}
    if record.name not in kinds:
        raise RemoteProtocolError(f"a {record.name} in a control topic")
    entry: ControlRecord = kinds[record.name](*fields)
    return entry
