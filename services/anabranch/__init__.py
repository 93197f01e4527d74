"""anabranch: fault-tolerant, federated stream processing on Kafka and PySpark.

Each service has a folder: ``ingestion``, ``processing``, ``delivery`` and ``consistency_manager``
run a pipeline, ``contract_broker``, ``agent`` and ``auditor`` a federation. Beside them are the
layers they share. Imports go one way: service -> federation -> adapters -> streams -> process ->
ports -> pipeline -> codec -> protocol. ``protocol`` is pure and uses the standard library only.
Services never import services; they meet in Kafka topics.
"""

__version__ = "0.1.0"
