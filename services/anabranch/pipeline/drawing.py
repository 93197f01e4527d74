"""Drawing of a pipeline: a tree of text for a terminal, and SVG for a page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline

_BOX_W = 200
_BOX_H = 50
_GAP_X = 70
_GAP_Y = 24
_MARGIN = 20
_CHARACTERS_MAX: Final = 30
"""Characters of text that fit into a box; longer text is cut."""
_COLOURS: Final = {
    "binding": "#efeaf6",
    "source": "#e8f1fa",
    "stage": "#eef6e8",
    "output": "#fdf3e1",
}


class Box(NamedTuple):
    """One source, stage, bound stream or output of the drawing; each shard of a source or output
    has its own. ``reads``: keys of the boxes that it reads.
    """

    key: str
    kind: str
    name: str
    detail: str
    reads: tuple[str, ...]


def boxes(pipeline: Pipeline) -> list[Box]:
    """Return the boxes of a pipeline: sources, streams of other pipelines, stages in dependency
    order, outputs.
    """
    node_of = {label: node for node, labels in pipeline.nodes().items() for label in labels}
    found = [
        Box(
            f"stream {name}",
            "source",
            name,
            f"topic {', '.join(source.topics)} ({source.format})",
            (),
        )
        for source in pipeline.sources.values()
        for name in source.streams()
    ]
    found += [
        Box(f"stream {name}", "binding", name, f"{bound.stream} of pipeline {bound.pipeline}", ())
        for name, bound in pipeline.bindings.items()
    ]
    for name in pipeline.order():
        stage = pipeline.stages[name]
        nodes = ", ".join(
            dict.fromkeys(node_of[f"{name}.{replica}"] for replica in stage.process_ids())
        )
        reads = tuple(f"stream {stream}" for stream in pipeline.inputs(name))
        found.append(
            Box(f"stream {name}", "stage", name, f"{', '.join(stage.functions)} on {nodes}", reads)
        )
    for name, output in pipeline.deliveries().items():
        is_first = name == output.processes()[0]
        live = "" if output.live is None or not is_first else f", live {output.live.topic}"
        found.append(
            Box(
                f"output {name}",
                "output",
                name,
                f"topic {output.corrected.topic}{live}",
                (f"stream {output.stage}",),
            )
        )
    return found


def text(pipeline: Pipeline) -> Iterator[str]:
    """Yield the lines of one tree per source. A box that reads several streams is listed below each
    of them, but what follows it only once.
    """
    found = boxes(pipeline)
    shown: set[str] = set()

    def branch(box: Box, indent: str) -> Iterator[str]:
        after = [other for other in found if box.key in other.reads]
        for place, other in enumerate(after):
            last = place == len(after) - 1
            again = other.key in shown
            shown.add(other.key)
            yield (
                f"{indent}{'└─ ' if last else '├─ '}{other.kind} {other.name} "
                f" {'(see above)' if again else other.detail}"
            )
            if not again:
                yield from branch(other, f"{indent}{'   ' if last else '│  '}")

    yield f"pipeline {pipeline.name}"
    for box in found:
        if not box.reads:
            yield f"{box.kind} {box.name}  {box.detail}"
            yield from branch(box, "")


def columns_of(found: list[Box]) -> dict[str, int]:
    """Return the column of each box, by key: the number of boxes before it on the longest path to
    it. All outputs are in the last column.
    """
    columns: dict[str, int] = {}
    for box in found:
        columns[box.key] = 1 + max((columns[key] for key in box.reads), default=-1)
    last = max(columns.values())
    return columns | {box.key: last for box in found if box.kind == "output"}


def svg(pipeline: Pipeline) -> str:
    """Return the drawing as SVG: columns of boxes from sources on the left to outputs on the right,
    with a line for each stream that is read.
    """
    found = boxes(pipeline)
    columns = columns_of(found)
    last = max(columns.values())
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for box in found:
        column = columns[box.key]
        row = rows[column] = rows.get(column, -1) + 1
        places[box.key] = (_MARGIN + column * (_BOX_W + _GAP_X), _MARGIN + row * (_BOX_H + _GAP_Y))
    width = 2 * _MARGIN + (last + 1) * _BOX_W + last * _GAP_X
    height = 2 * _MARGIN + (max(rows.values()) + 1) * (_BOX_H + _GAP_Y) - _GAP_Y
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        f"<title>pipeline {escape(pipeline.name)}</title>",
        *(_edge_svg(places[key], places[box.key]) for box in found for key in box.reads),
        *(_box_svg(box, *places[box.key]) for box in found),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _edge_svg(start: tuple[int, int], end: tuple[int, int]) -> str:
    (x1, y1), (x2, y2) = (start[0] + _BOX_W, start[1] + _BOX_H // 2), (end[0], end[1] + _BOX_H // 2)
    middle = (x1 + x2) // 2
    return (
        f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}" fill="none" stroke="#777"'
        ' stroke-width="1.5"/>'
    )


def _box_svg(box: Box, x: int, y: int) -> str:
    return (
        f"<g><title>{escape(f'{box.kind} {box.name}: {box.detail}')}</title>"
        f'<rect x="{x}" y="{y}" width="{_BOX_W}" height="{_BOX_H}" rx="6"'
        f' fill="{_COLOURS[box.kind]}" stroke="#555"/>'
        f'<text x="{x + 10}" y="{y + 21}" font-weight="bold">{escape(_shortened(box.name))}</text>'
        f'<text x="{x + 10}" y="{y + 39}" font-size="11"'
        f' fill="#444">{escape(_shortened(box.detail))}</text></g>'
    )


def _shortened(words: str) -> str:
    return words if len(words) <= _CHARACTERS_MAX else f"{words[: _CHARACTERS_MAX - 1]}…"
