"""``python -m anabranch.adapters.spark.worker_daemon``: Spark starts it so."""

from __future__ import annotations

import gc

from pyspark import daemon

from anabranch.adapters.spark.worker_daemon import FreezesImports

gc.callbacks.append(FreezesImports())
daemon.manager()
