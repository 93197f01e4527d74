"""Layout of the pipeline's graph on the page: a column per step from the sources on, and a lane per
participant.

Sources and outputs belong to no participant. A source is in the lane of the first stage that reads
it, an output in that of its stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.pipeline.drawing import boxes, columns_of

if TYPE_CHECKING:
    from anabranch.pipeline.drawing import Box
    from anabranch.pipeline.model import Pipeline


@dataclass(frozen=True, slots=True)
class NodePosition:
    """Position of one source, stage, binding or output."""

    key: str
    kind: str
    name: str
    detail: str
    reads: tuple[str, ...]
    """Keys of its direct upstream boxes."""
    participant: str
    column: int
    row: int
    rows: int
    """Height in rows. The boxes of a column share the lane's height among them."""


def places(pipeline: Pipeline) -> list[NodePosition]:
    """Return the positions of all boxes, lane by lane. Rows are numbered across the lanes."""
    found = boxes(pipeline)
    columns = columns_of(found)
    lane_of = _lanes(pipeline, found)
    placed: list[NodePosition] = []
    above = 0
    for lane in dict.fromkeys(lane_of[box.key] for box in found):
        mine = [box for box in found if lane_of[box.key] == lane]
        stacks: dict[int, list[Box]] = {}
        for box in mine:
            stacks.setdefault(columns[box.key], []).append(box)
        height = max(len(stack) for stack in stacks.values())
        middle: dict[str, float] = {}
        for column in sorted(stacks):
            stack = sorted(stacks[column], key=lambda each: _pull(each, middle))
            for place, box in enumerate(stack):
                first, end = (height * each // len(stack) for each in (place, place + 1))
                middle[box.key] = (first + end) / 2
                placed.append(
                    NodePosition(
                        box.key,
                        box.kind,
                        box.name,
                        box.detail,
                        box.reads,
                        lane,
                        column,
                        above + first,
                        end - first,
                    )
                )
        above += height
    return placed


def _pull(box: Box, middle: dict[str, float]) -> float:
    """Return the mean height of the boxes that ``box`` reads. Boxes are sorted by it in their
    column, so that fewer lines cross.
    """
    known = [middle[key] for key in box.reads if key in middle]
    return sum(known) / len(known) if known else 0.0


def _lanes(pipeline: Pipeline, found: list[Box]) -> dict[str, str]:
    """Return the lane, a participant, of each box by its key."""
    owner = {f"stream {name}": stage.participant for name, stage in pipeline.stages.items()}
    for box in found:
        if box.key in owner:
            for key in box.reads:
                owner.setdefault(key, owner[box.key])
    for box in found:
        if box.kind == "output":
            owner[box.key] = owner[box.reads[0]]
    return {box.key: owner.get(box.key, "") for box in found}
