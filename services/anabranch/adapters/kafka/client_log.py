"""Where the Kafka client logs.

It logs a lost connection as an error, and makes it anew by itself: while a broker starts or is
away, every attempt. Here that is a warning. What it costs is raised by the call that waits.
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
    """A filter of LOGGER, which lets everything through. A line about a certificate, a password, or
    anything else stays an error.
    """
    if record.levelno == logging.ERROR and _LOST.search(record.getMessage()):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


LOGGER.addFilter(lost_is_a_warning)
