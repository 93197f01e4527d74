"""Small parts of the supervisor; the whole is in tests/integration/test_supervisor.py."""

from __future__ import annotations

from pathlib import Path

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import state_file
from anabranch.local.supervisor import Supervisor, stop_servers
from anabranch.protocol.errors import Unavailable
from harness.waiting import wait_until


class _Server:
    """An embedded server that can be made to die, and to refuse its next starts."""

    pid: int | None = 7
    address = "127.0.0.1:9"

    def __init__(self) -> None:
        self.up = True
        self.refusals = 0
        self.starts = 0

    def alive(self) -> bool:
        return self.up

    def start(self) -> str:
        self.starts += 1
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not yet")
        self.up = True
        return self.address

    def stop(self, timeout_s: float) -> None:
        self.up = False


def test_a_dead_server_is_started_again_at_its_address_with_growing_delay(tmp_path: Path) -> None:
    server, lines = _Server(), list[str]()
    supervisor = Supervisor(tmp_path, [], SystemClock(), lines.append, pipeline="p", kafka=server.address, servers={"kafka": server})
    supervisor.step()
    server.up, server.refusals = False, 1

    def restarted() -> bool:
        supervisor.step()
        return server.up

    supervisor.step()
    deployment = state_file.read(tmp_path)
    assert deployment is not None
    assert (deployment.processes[0].state, deployment.processes[0].pid, deployment.processes[0].address) == (
        "restarting",
        None,
        "127.0.0.1:9",
    )
    wait_until(restarted, 10, "the server is up again")
    assert server.starts == 2
    assert [line.partition(";")[0] for line in lines if "ended" in line] == ["kafka ended", "kafka ended"]
    assert "kafka does not start: not yet" in lines
    supervisor.stop()
    assert not server.up


def test_all_servers_are_stopped() -> None:
    servers = {"kafka": _Server(), "redis": _Server()}
    stop_servers(servers, 1.0)
    assert not any(server.up for server in servers.values())
    stop_servers({}, 1.0)
