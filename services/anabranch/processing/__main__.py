"""``python -m anabranch.processing``: one node."""

from functools import partial

from anabranch.adapters.connect import connect, other_cluster
from anabranch.processing.node import Node
from anabranch.runtime.service import main

main("processing", partial(Node, other_cluster=other_cluster), connect)
