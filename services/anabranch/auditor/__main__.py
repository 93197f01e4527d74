"""Entry point of ``python -m anabranch.auditor``: one auditor for each pipeline whose stages are
sold.
"""

from functools import partial

from anabranch.adapters.connect import audit_nonces, connect
from anabranch.adapters.spark.engine_start import start_engine
from anabranch.auditor.service import build
from anabranch.process.frame import main

main("auditor", partial(build, start_engine=start_engine, audit_nonces=audit_nonces), connect)
