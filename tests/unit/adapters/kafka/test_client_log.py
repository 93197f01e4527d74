"""Log levels of the Kafka client's lines: a lost connection is a warning, other errors stay
errors.
"""

from __future__ import annotations

import logging

import pytest

from anabranch.adapters.kafka.client_log import LOGGER

_LOST = "FAIL [anabranch#producer-1] [thrd:h:1/bootstrap]: h:1/bootstrap: "


@pytest.mark.parametrize(
    ("level", "text", "logged"),
    [
        (logging.ERROR, _LOST + "Connect to ipv4#h:1 failed: Connection refused", "WARNING"),
        (logging.ERROR, _LOST + "Disconnected (after 5ms in state UP)", "WARNING"),
        (logging.ERROR, "ERROR [anabranch#consumer-2] 1/1 brokers are down", "WARNING"),
        (logging.ERROR, _LOST + "SSL handshake failed: certificate verify failed", "ERROR"),
        (logging.ERROR, _LOST + "SASL authentication error: bad password", "ERROR"),
        (logging.CRITICAL, _LOST + "Connection refused", "CRITICAL"),
        (logging.INFO, _LOST + "Connection refused", "INFO"),
    ],
)
def test_a_lost_connection_is_a_warning(
    caplog: pytest.LogCaptureFixture, level: int, text: str, logged: str
) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    LOGGER.log(level, "%s", text)
    assert [record.levelname for record in caplog.records] == [logged]
