"""Module that PySpark imports in a worker that only looks for data sources. It offers none, and
makes the worker end without a message.
"""

from __future__ import annotations

from anabranch.adapters.spark.worker_daemon import quieten_planner

quieten_planner()
