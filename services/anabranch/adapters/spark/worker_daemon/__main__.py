"""``python -m anabranch.adapters.spark.worker_daemon``: Spark starts it so."""

from __future__ import annotations

import gc

from pyspark import daemon

from anabranch.adapters.spark.worker_daemon import FreezesImports, quiet_at_its_end

gc.callbacks.append(FreezesImports())
daemon.worker = quiet_at_its_end(daemon.worker)
daemon.manager()
