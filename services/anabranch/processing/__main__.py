"""Entry point of ``python -m anabranch.processing``: runs one node."""

from functools import partial

from anabranch.adapters.connect import connect, other_cluster, replica_disks
from anabranch.adapters.spark.engine_start import start_engine
from anabranch.process.frame import main
from anabranch.processing.node import Machinery, Node

MACHINERY = Machinery(start_engine, replica_disks, other_cluster)

main("processing", partial(Node, machinery=MACHINERY), connect)
