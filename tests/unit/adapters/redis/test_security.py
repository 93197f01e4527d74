"""Options in the URL of the index: none may make a connection less safe than the environment
requires.
"""

from __future__ import annotations

import pytest

from anabranch.adapters.redis.index import RedisIndex
from anabranch.adapters.redis.security import RedisSecurity
from anabranch.protocol.errors import ConfigurationError


@pytest.mark.parametrize(
    "query",
    [
        "ssl_cert_reqs=none",
        "ssl_check_hostname=false",
        "ssl_cert_reqs=none&ssl_check_hostname=false",
        "db=1&ssl_ca_certs=/tmp/other.pem",
        "ssl%5Fcert_reqs=none",
        "ssl_cert_reqs=",
        "socket_timeout=1000",
        "connection_class=Connection",
        "SSL_CERT_REQS=none",
    ],
)
def test_options_that_change_how_a_connection_is_made_are_rejected(query: str) -> None:
    for make in (RedisIndex, RedisSecurity().options):
        with pytest.raises(ConfigurationError, match="the URL of the index has the option"):
            make(f"rediss://example:6380/0?{query}")


def test_a_rejection_does_not_repeat_a_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisIndex("rediss://:planted@example:6380/0?password=planted&ssl_cert_reqs=none")
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("query", ["", "?db=3", "?username=a&password=b", "?password=b%26c"])
def test_verification_stays_on(query: str) -> None:
    index = RedisIndex(f"rediss://example:6380/0{query}")
    assert index._client is not None
    made = index._client.connection_pool.connection_kwargs
    assert (made["ssl_cert_reqs"], made["ssl_check_hostname"]) == ("required", True)
    index.close()
