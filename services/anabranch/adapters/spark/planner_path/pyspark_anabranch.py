"""PySpark imports this where it looks for data sources, in a worker that does nothing else. It
offers none: the worker is only to end without a word.
"""

from __future__ import annotations

from anabranch.adapters.spark.worker_daemon import quieten_planner

quieten_planner()
