"""Entry point of ``python -m anabranch.contract_broker``: one broker per participant, and one for
the auditor.
"""

from __future__ import annotations

from anabranch.adapters.connect import connect
from anabranch.contract_broker.service import build
from anabranch.process.frame import main

if __name__ == "__main__":
    main("contract_broker", build, connect)
