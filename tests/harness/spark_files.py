"""A checkpoint directory as Spark writes it, without Spark: logs, state of format 2, Hadoop's
sums.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from anabranch.codec.plan_offsets import INITIAL, Offset

_BYTES = 512


def write(path: Path, content: bytes) -> None:
    """Write a file and its checksums."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums = b"".join(
        struct.pack(">I", zlib.crc32(content[i : i + _BYTES]))
        for i in range(0, len(content), _BYTES)
    )
    (path.parent / f".{path.name}.crc").write_bytes(b"crc\0" + struct.pack(">i", _BYTES) + sums)


def position(batch: int, bucket: int | None = None) -> Offset:
    """Return the offset of an input after ``batch``, which reads one bucket and closes it."""
    upto = 10 * (batch + 1) if bucket is None else bucket
    return {**INITIAL, "sequence": batch + 1, "bucket": upto, "has_rows": True}


def log_batch(
    checkpoint: Path, batch: int, offsets: list[Offset] | None = None, watermark_ms: int = 0
) -> None:
    """Log the plan of a batch."""
    lines = [
        "v1",
        json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}}),
    ]
    lines += [
        json.dumps(offset) for offset in (offsets if offsets is not None else [position(batch)] * 2)
    ]
    write(checkpoint / "offsets" / str(batch), "\n".join(lines).encode())


def commit_batch(
    checkpoint: Path,
    batch: int,
    *,
    partitions: int = 0,
    snapshot: bool = False,
    snapshot_bytes: int = 0,
) -> None:
    """Its state, one operator of so many partitions, and its commit. ``snapshot``: of all
    state too, which names a file. ``snapshot_bytes``: size of that file; 0: small.
    """
    ids: list[list[str]] = []
    for partition in range(partitions):
        ids.append([f"{batch:04d}-{partition}"])
        folder, name = checkpoint / "state" / "0" / str(partition), f"{batch + 1}_{ids[-1][0]}"
        write(folder / f"{name}.changelog", f"changes of {name}".encode() * 100)
        if snapshot:
            rows = os.urandom(snapshot_bytes) or f"rows of {name}".encode() * 100
            write(folder / "SSTs" / f"{name}.sst", rows)
            named = {
                "sstFiles": [
                    {
                        "localFileName": "0.sst",
                        "dfsSstFileName": f"{name}.sst",
                        "sizeBytes": len(rows),
                    }
                ],
                "numKeys": 1,
            }
            made = folder / "made.zip"
            with zipfile.ZipFile(made, "w") as archive:
                archive.writestr("metadata", "v1\n" + json.dumps(named))
            content = made.read_bytes()
            made.unlink()
            write(folder / f"{name}.zip", content)
    fields: dict[str, Any] = {"nextBatchWatermarkMs": 0} | (
        {"stateUniqueIds": {"0": ids}} if partitions else {}
    )
    write(checkpoint / "commits" / str(batch), ("v2\n" + json.dumps(fields)).encode())


def fill(
    checkpoint: Path,
    batches: int,
    *,
    partitions: int = 2,
    snapshots: tuple[int, ...] = (),
    snapshot_bytes: int = 0,
    plan: bool = True,
) -> None:
    """Write so many committed batches, and the plan of one more. ``snapshot_bytes``: size of the
    file of each partition that a snapshot names; 0: small.
    """
    checkpoint.mkdir(parents=True, exist_ok=True)
    write(checkpoint / "metadata", b'{"id":"0a"}')
    if partitions:
        write(checkpoint / "state" / "0" / "_metadata" / "metadata", b"v1\n{}")
        write(checkpoint / "state" / "0" / "0" / "_metadata" / "schema", b"v2\n{}")
    for batch in range(batches):
        log_batch(checkpoint, batch)
        commit_batch(
            checkpoint,
            batch,
            partitions=partitions,
            snapshot=batch in snapshots,
            snapshot_bytes=snapshot_bytes,
        )
    if plan:
        log_batch(checkpoint, batches)
