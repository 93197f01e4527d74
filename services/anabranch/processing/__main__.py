"""``python -m anabranch.processing``: one node."""

from anabranch.adapters.connect import connect
from anabranch.processing.node import Node
from anabranch.runtime.service import main

main("processing", Node, connect)
