"""An error of a task on a cluster names its machine."""

from __future__ import annotations

import socket

import pytest

from anabranch.adapters.spark.machines import EXECUTOR, machine_named
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    RecordTooLarge,
    StageFunctionError,
    Unavailable,
)

KINDS = [ConfigurationError, Unavailable, RecordTooLarge, DataMissing, StageFunctionError]
OF_MACHINES = KINDS[:3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_executor", [True, False])
def test_what_may_be_of_one_machine_names_it_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch, kind: type[AnabranchError], is_executor: bool
) -> None:
    if is_executor:
        monkeypatch.setenv(EXECUTOR, "1")
    with pytest.raises(AnabranchError) as found, machine_named():
        raise kind("the ca is missing")
    assert type(found.value) is kind
    text, here = str(found.value), f"executor on {socket.gethostname()}: the ca is missing"
    if is_executor and kind in OF_MACHINES:
        assert text.startswith(here)
        assert ("on each machine of the cluster" in text) == (kind is ConfigurationError)
    else:
        assert text == "the ca is missing"
