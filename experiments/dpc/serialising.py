"""``python -m experiments.dpc.serialising``: what it costs that rows go in buckets with boundaries,
while nothing fails: bytes, processor time and delay.

Bytes are exact. Processor time is that of this process on whatever machine this is, so what counts
is its ratio to plain Arrow in the same run. Delays are in virtual time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.codec import boundary_records
from anabranch.codec.blocks import BlockHeaders, decode_block, digest, encode_block
from anabranch.protocol.errors import AnabranchError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, Part
from anabranch.protocol.stage.scheduling import pace_ms
from experiments.dpc.plan import Session
from experiments.dpc.sources import tuples
from experiments.dpc.virtual import Costs, VirtualSession
from experiments.pages import table, write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE: Final = Path(__file__).parents[2] / "docs/experiments/serialisation.md"
ROWS: Final = (1, 10, 100, 1_000, 10_000)
TIMED_ROWS: Final = ROWS[1:]
WIDTHS_MS: Final = (50, 100, 150, 200, 300, 500)
"""Bucket widths of the published table from 50 ms on, in ms."""
NODES: Final = (1, 2, 3, 4)
CALM_S: Final = 40
SMALL_BATCH_MS: Final = 10
SPARK_BATCH_MS: Final = 214
"""Time of a batch in a chain, as measured by ``experiments.dpc`` on real processes."""
SPREAD: Final = (0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0, 1.2, 1.9)
"""Batches that vary: the median is 0.9, and one of nine takes about twice as long."""
CORES: Final = 2
BUSY_CORES: Final = 1.3
"""Number of CORES that other programs leave, about as in the real runs."""
_ATTEMPT: Final = "0123456789abcdef"
_ROUNDS: Final = 7
_ROWS_PER_ROUND: Final = 20_000
_NOTE: Final = "n" * 1_000


def shapes(rows: int) -> dict[str, pa.Table]:
    """Return tables of ``rows`` rows, by name: four numbers; a note of 1 000 bytes beside them."""
    numbers = tuples(1_000, rows, 1_000)
    with_note = numbers.add_column(1, "note", pa.array([_NOTE] * rows))
    return {"four numbers": numbers, "and a note of 1 000 bytes": with_note}


def headers() -> list[tuple[str, bytes]]:
    """Return the header of a block."""
    return BlockHeaders(bucket=1_000, epoch=1_000, number=0, replica="0", attempt=_ATTEMPT).encode()


def boundary(rows: int, total: int) -> BoundaryRecord:
    """Return the boundary record of a batch with one block of ``rows`` rows."""
    part = Part(1_000, 0, _ATTEMPT, 1, 1_000, 1_001, rows, total)
    before = BatchId("000000000001-000000", 999)
    ident = BatchId("000000000001-000000", 1_000)
    return BoundaryRecord("0", 1_000, ident, before, 1_000, (part,))


def sizes(rows: int, name: str) -> tuple[int, int, int]:
    """Return the bytes of the rows themselves, of their block, and of its boundary record."""
    rows_of = shapes(rows)[name]
    value, names = boundary_records.encode(boundary(rows, digest(rows_of)))
    block = len(encode_block(rows_of)) + sum(len(key) + len(each) for key, each in headers())
    control = len(value) + sum(len(key) + len(each or b"") for key, each in names)
    return rows_of.nbytes, block, control


def bytes_table() -> str:
    """Return the table of bytes for each row."""
    lines = []
    for name in shapes(1):
        for rows in ROWS:
            payload, block, control = sizes(rows, name)
            extra = 100 * (block + control - payload) / payload
            each = [f"{size / rows:,.1f}".replace(",", " ") for size in (payload, block, control)]
            lines.append(
                [name, f"{rows:,}".replace(",", " "), *each, f"{extra:,.1f} %".replace(",", " ")]
            )
    head = ["row", "rows in a block", "the row", "in a block", "of the boundary record"]
    return table([*head, "beyond the row"], lines)


def _plain_encode(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _plain_decode(value: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(value)).read_all()


def _write(rows: pa.Table) -> None:
    """Do what a writer does for a block besides sending it."""
    encode_block(rows)
    headers()
    boundary_records.encode(boundary(rows.num_rows, digest(rows)))


def _read(
    value: bytes, head: list[tuple[str, bytes]], record: bytes, names: boundary_records.Headers
) -> None:
    """Do what a reader does for a block of another process: check its form and its digest."""
    boundary_records.decode(record, names)
    BlockHeaders.decode(head)
    digest(decode_block(value))


def _us(work: Callable[[], object], rows: int) -> float:
    """Return the least processor time of ``work`` for each of its rows, in us."""
    times = max(1, _ROWS_PER_ROUND // rows)
    found = []
    for _ in range(_ROUNDS):
        begun = time.process_time_ns()
        for _ in range(times):
            work()
        found.append((time.process_time_ns() - begun) / times / rows / 1_000)
    return min(found)


def time_table() -> str:
    """Return the table of processor time for each row."""
    lines = []
    for rows in TIMED_ROWS:
        numbers = shapes(rows)["four numbers"]
        value = encode_block(numbers)
        record, names = boundary_records.encode(boundary(rows, digest(numbers)))
        head = headers()
        plain_out = _us(lambda n=numbers: _plain_encode(n), rows)  # type: ignore[misc]
        out = _us(lambda n=numbers: _write(n), rows)  # type: ignore[misc]
        plain_in = _us(lambda v=value: _plain_decode(v), rows)  # type: ignore[misc]
        own_in = _us(lambda v=value: decode_block(v, is_own=True), rows)  # type: ignore[misc]
        back = _us(lambda v=value, h=head, r=record, m=names: _read(v, h, r, m), rows)  # type: ignore[misc]
        lines.append(
            [
                f"{rows:,}".replace(",", " "),
                f"{plain_out:.3f}",
                f"{out:.3f} ({out / plain_out:.1f} x)",
                f"{plain_in:.3f}",
                f"{own_in:.3f} ({own_in / plain_in:.1f} x)",
                f"{back:.3f} ({back / plain_in:.1f} x)",
            ]
        )
    head_line = ["rows in a block", "plain Arrow, write", "a writer", "plain Arrow, read"]
    return table([*head_line, "a reader of its own pipeline", "a reader of a partner"], lines)


def calm(nodes: int, costs: Costs, width_ms: int = 100) -> VirtualSession:
    """Run a chain without a failure.

    Raises:
        AnabranchError: a result is wrong.
    """
    session = Session(f"calm-{nodes}", (), nodes, 8_000, policy="suspend", width_ms=width_ms)
    with tempfile.TemporaryDirectory(prefix="anabranch-serialising-") as folder:
        running = VirtualSession(session, Path(folder), costs)
        running.calm(CALM_S * 1_000)
    if running.result.error or running.result.wrong:
        raise AnabranchError(f"{session.name}: {running.result.error or running.result.wrong}")
    return running


def bucket_delays(running: VirtualSession) -> list[float]:
    """Return the delays of buckets at the end of a chain, once it is warm."""
    results = running.result.traces[-1].new_results()
    return [each.delay_ms for each in results if each.bucket * running.session.width_ms > 5_000]


def width_table() -> str:
    """Return the table of a row's delay by the width of buckets: a row waits half of its bucket on
    average, all of it at most, and then for the batch.
    """
    lines = []
    for batch_ms in (SMALL_BATCH_MS, Costs().batch_ms):
        cells = []
        for width_ms in WIDTHS_MS:
            delays = bucket_delays(calm(1, Costs(batch_ms=batch_ms), width_ms))
            mean = sum(delays) / len(delays) + width_ms / 2
            cells.append(f"{mean:.0f} / {max(delays) + width_ms:.0f}")
        lines.append([f"{batch_ms:g} ms", *cells])
    return table(["a batch takes", *(f"{width_ms} ms" for width_ms in WIDTHS_MS)], lines)


def node_table(chains: Sequence[int] = NODES) -> str:
    """Return the table of the mean delay of buckets at the end of chains, of what each node adds to
    it, and of the batches of all nodes of the longest chain.
    """
    alike, vary = (1.0,), SPREAD
    up = Costs(SPARK_BATCH_MS, pace_ms=1, is_shared=True)
    before = replace(up, spread=vary, keeps_slots=False)
    kinds = {
        "without a pace, batches alike": Costs(SPARK_BATCH_MS, is_shared=True),
        "the pace of `up`, batches alike": replace(up, spread=alike),
        "the pace of `up`, batches vary": replace(up, spread=vary),
        "the same, a third of the cores is busy": replace(up, spread=vary, cores=BUSY_CORES),
        "as before: no slots, batches vary": before,
        "the same, a third of the cores is busy ": replace(before, cores=BUSY_CORES),
    }
    lines = []
    for name, costs in kinds.items():
        means, batches = list[float](), 0
        for nodes in chains:
            pace = pace_ms(nodes, CORES) if costs.pace_ms else 0
            running = calm(nodes, replace(costs, pace_ms=pace))
            delays = bucket_delays(running)
            means.append(sum(delays) / len(delays) / 1_000)
            batches = sum(replica.batches for replica in running.replicas)
        growth, per_s = (means[-1] - means[0]) / (chains[-1] - chains[0]), batches / CALM_S
        figures = [*means, growth, per_s]
        lines.append([name.strip(), *(f"{each:.2f}" for each in figures)])
    head = ["two cores for all", *(f"{nodes} node{'s' * (nodes > 1)}" for nodes in chains)]
    return table([*head, "each node adds", f"batches/s of {chains[-1]}"], lines)


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.dpc.serialising")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the figures to")
    arguments = parser.parse_args()
    blocks = {
        "bytes": bytes_table(),
        "time": time_table(),
        "width": width_table(),
        "nodes": node_table(),
    }
    for name, block in blocks.items():
        print(f"{name}\n{block}\n")
    write_page(arguments.page, blocks, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
