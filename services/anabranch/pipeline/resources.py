"""Resources of nodes and stages in a pipeline file: memory, cores, and the Spark master on which a
node's tasks run.
"""

from __future__ import annotations

import re
from typing import Final

from anabranch.pipeline.document import Document, Place, shown
from anabranch.pipeline.model import MASTER, MASTER_FORMS, Pipeline, Resources
from anabranch.protocol import limits

STAGE_KEYS: Final = ("memory", "cores")
"""Keys of a stage's resources. Only a node has a ``master``."""

_NODE_KEYS: Final = (*STAGE_KEYS, "master")
_MEMORY: Final = re.compile(r"[1-9][0-9]{0,6}[mg]\Z")
_UNSTATED_HEAP_MIB: Final = 1_024
"""Heap, in MiB, for all those stages of a node together that state no memory, where others state
it.
"""
_UNSTATED_CORES: Final = 2
"""Cores for those stages of a node that state none, where others state them."""


def resources_of(file: Document, value: object) -> dict[str, Resources]:
    """Return the section ``resources``, by node; the nodes are not checked to exist."""
    entries = file.mapping(value, ("resources",), None).items()
    return {
        node: read_resources(file, entry, ("resources", node), _NODE_KEYS)
        for node, entry in entries
    }


def read_resources(file: Document, value: object, at: Place, keys: tuple[str, ...]) -> Resources:
    """Return the resources at ``at``, which may have ``keys``."""
    raw = file.mapping(value, at, keys)
    memory = raw.get("memory")
    cores = raw.get("cores")
    master = raw.get("master")
    if memory is not None and (not isinstance(memory, str) or not _MEMORY.match(memory)):
        file.mistake((*at, "memory"), f"{shown(memory)} is no size; write for example 512m or 2g")
        memory = None
    if master is not None and (not isinstance(master, str) or not re.match(MASTER, master)):
        file.mistake(
            (*at, "master"),
            f"{shown(master)} is not a master that a node can use; {MASTER_FORMS}",
        )
        master = None
    elif isinstance(master, str) and cores is not None and master.startswith("local"):
        file.mistake(
            (*at, "cores"), f"master {master} sets the cores already; leave one of them out"
        )
    return Resources(
        memory=memory,
        master=master,
        cores=(None if cores is None else file.integer(cores, (*at, "cores"), 1, limits.CORES_MAX)),
    )


def of_node(pipeline: Pipeline, node: str) -> Resources:
    """Return the resources of the Spark of ``node``: what its section states; for what it does not
    state, the needs of its stages together, which are the sum of their memory and the most cores
    that one of them needs.
    """
    stated = pipeline.resources.get(node, Resources())
    stages = {label.rpartition(".")[0] for label in pipeline.nodes().get(node, [])}
    needs = [pipeline.stages[stage].resources for stage in sorted(stages)]
    sizes = [_mib(each.memory) for each in needs if each.memory is not None]
    cores = [each.cores for each in needs if each.cores is not None]
    if sizes and len(sizes) < len(needs):
        sizes.append(_UNSTATED_HEAP_MIB)
    if cores and len(cores) < len(needs):
        cores.append(_UNSTATED_CORES)
    # local[N] states the cores itself.
    is_local = stated.master is not None and stated.master.startswith("local")
    return Resources(
        memory=f"{sum(sizes)}m" if stated.memory is None and sizes else stated.memory,
        cores=max(cores) if stated.cores is None and cores and not is_local else stated.cores,
        master=stated.master,
    )


def _mib(memory: str) -> int:
    return int(memory[:-1]) * (1_024 if memory.endswith("g") else 1)
