"""``python -m anabranch.adapters.spark.worker_daemon``: Spark starts it so."""

from __future__ import annotations

import gc

from pyspark import daemon

# what every task needs: imported once, and its memory shared by the workers that are forked
import anabranch.adapters.spark.reading  # noqa: F401
from anabranch.adapters.spark.worker_daemon import FreezesImports, quiet_at_its_end

gc.callbacks.append(FreezesImports())
gc.collect()
daemon.worker = quiet_at_its_end(daemon.worker)
daemon.manager()
