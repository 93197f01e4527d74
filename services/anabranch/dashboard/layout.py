"""Where each source, stage and output of a pipeline stands on the page: a column for each step from
the sources on, a lane for each participant.

What belongs to nobody stands with those who use it: a source with the first stage that reads it, an
output with its stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.pipeline.drawing import boxes, columns_of

if TYPE_CHECKING:
    from anabranch.pipeline.drawing import Box
    from anabranch.pipeline.model import Pipeline


@dataclass(frozen=True, slots=True)
class Place:
    """One source, stage, binding or output, and where it stands."""

    key: str
    kind: str
    name: str
    detail: str
    reads: tuple[str, ...]
    """Keys of those before it."""
    participant: str
    column: int
    row: int
    rows: int
    """So many rows high: a column with few shares the lane's height among them."""


def places(pipeline: Pipeline) -> list[Place]:
    """All of them, lane by lane: rows go on from lane to lane."""
    found = boxes(pipeline)
    columns = columns_of(found)
    lane_of = _lanes(pipeline, found)
    placed: list[Place] = []
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
                    Place(
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
    """How far down those stand that it is made from: so lines cross less."""
    known = [middle[key] for key in box.reads if key in middle]
    return sum(known) / len(known) if known else 0.0


def _lanes(pipeline: Pipeline, found: list[Box]) -> dict[str, str]:
    """Whose lane each box stands in."""
    owner = {f"stream {name}": stage.participant for name, stage in pipeline.stages.items()}
    for box in found:
        if box.key in owner:
            for key in box.reads:
                owner.setdefault(key, owner[box.key])
    for box in found:
        if box.kind == "output":
            owner[box.key] = owner[box.reads[0]]
    return {box.key: owner.get(box.key, "") for box in found}
