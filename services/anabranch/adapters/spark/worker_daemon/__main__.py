"""Entry point of ``python -m anabranch.adapters.spark.worker_daemon``, as which Spark starts the
daemon.
"""

from __future__ import annotations

import gc

from pyspark import daemon

# The imports of every task, done once: forked workers share their memory.
import anabranch.adapters.spark.reading  # noqa: F401
from anabranch.adapters.spark.worker_daemon import FreezesImports, quiet_at_its_end

gc.callbacks.append(FreezesImports())
gc.collect()
daemon.worker = quiet_at_its_end(daemon.worker)
daemon.manager()
