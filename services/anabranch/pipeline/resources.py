"""What the pipeline file says of what nodes may take, and where their tasks run."""

from __future__ import annotations

import re
from typing import Final

from anabranch.pipeline.document import Document, Place, shown
from anabranch.pipeline.model import MASTER, MASTER_FORMS, Resources
from anabranch.protocol import limits

_MEMORY: Final = re.compile(r"[1-9][0-9]{0,6}[mg]\Z")


def resources_of(file: Document, value: object) -> dict[str, Resources]:
    """The section ``resources``, by the names of nodes, known ones or not."""
    entries = file.mapping(value, ("resources",), None).items()
    return {node: _of_node(file, node, entry) for node, entry in entries}


def _of_node(file: Document, node: str, value: object) -> Resources:
    at: Place = ("resources", node)
    raw = file.mapping(value, at, ("memory", "cores", "master"))
    memory = raw.get("memory")
    cores = raw.get("cores")
    master = raw.get("master")
    if memory is not None and (not isinstance(memory, str) or not _MEMORY.match(memory)):
        file.mistake((*at, "memory"), f"{shown(memory)} is no size; write for example 512m or 2g")
        memory = None
    if master is not None and (not isinstance(master, str) or not re.match(MASTER, master)):
        file.mistake(
            (*at, "master"),
            f"{shown(master)} is no master that a node can have; {MASTER_FORMS}",
        )
        master = None
    elif isinstance(master, str) and cores is not None and master.startswith("local"):
        file.mistake((*at, "cores"), f"{master} says it already; leave one of them out")
    return Resources(
        memory=memory,
        master=master,
        cores=(None if cores is None else file.integer(cores, (*at, "cores"), 1, limits.CORES_MAX)),
    )
