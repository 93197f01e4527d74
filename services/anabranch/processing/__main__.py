"""``python -m anabranch.processing``: one replica of one stage."""

from anabranch.adapters.connect import connect
from anabranch.processing.service import ProcessingService
from anabranch.runtime.service import main

main("processing", ProcessingService, connect)
