"""Logger of the Kafka client.

The client logs a lost connection as an error and reconnects by itself; while a broker starts or is
away it logs every attempt. Such lines become warnings here: the call that waits for the broker
raises the actual error.
"""

from __future__ import annotations

import logging
import re
from typing import Final

LOGGER: Final = logging.getLogger("anabranch.adapters.kafka")

_LOST: Final = re.compile(
    r"^(?:FAIL|ERROR) \[.*(?:Connection (?:reset|refused)|Connect to .* failed|Disconnected"
    r"|timed out|brokers are down|Broken pipe|transport failure)",
    re.IGNORECASE | re.DOTALL,
)


def lost_is_a_warning(record: logging.LogRecord) -> bool:
    """Lower the level of lines about lost connections to warning. A filter of LOGGER that lets
    everything pass; lines about certificates, passwords or anything else stay errors.
    """
    if record.levelno == logging.ERROR and _LOST.search(record.getMessage()):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


LOGGER.addFilter(lost_is_a_warning)
