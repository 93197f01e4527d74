"""anabranch: fault-tolerant, federated stream processing on Kafka and PySpark.

One folder per service (``ingestion``, ``processing``, ``delivery``, ``consistency_manager``) beside
the layers they share. Imports go one way: service -> {runtime, adapters} -> ports -> pipeline ->
codec -> protocol. ``protocol`` is pure and uses the standard library only; services never import
services, they meet in Kafka topics.
"""

__version__ = "0.1.0"
