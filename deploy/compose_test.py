"""Tries docker-compose.yml for real: up, records in, results out and compared with the oracle, a
service killed, down.

    python -m deploy.compose_test

Uses a project name, ports and volumes of its own, and removes them at the end. Prints one line per
check and counts them. Without a docker engine it says so, counts the checks as skipped and ends
with 0: the same services run without containers in the integration tests.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import polars as pl

from anabranch.local.tcp_ports import free_port
from demo.comparing import Delivered, compare
from demo.consuming import TopicReader, delivered
from demo.job import read_job
from demo.oracle import answers
from demo.oracle import results as results_of
from demo.traffic import Traffic, TrafficWriter

ROOT: Final = Path(__file__).parents[1]
PROJECT: Final = "anabranch-check"
JOB: Final = read_job(ROOT / "examples/toll_road/pipeline.yaml")

UP_S_MAX: Final = 300
HEALTHY_S_MAX: Final = 120
RESULTS_S_MAX: Final = 180
EXTRA_S: Final = 3
"""Time to watch for results that must not come, in seconds."""

DOWN_S_MAX: Final = 30
UID: Final = "10001"
KILLED: Final = ("node-north-0", "ingestion-reports-1", "delivery-tolls")


class Checks:
    """Runner and counter of named checks."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def run(self, name: str, check: Callable[[], str | None]) -> bool:
        """Run ``check``, which raises AssertionError or CalledProcessError when it fails, and print
        what it returns.
        """
        begun = time.monotonic()
        try:
            note = check()
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            self.failed += 1
            output = getattr(error, "stderr", None)
            print(
                f"FAIL {name}: {error}{os.linesep + output[-3_000:] if output else ''}", flush=True
            )
            return False
        self.passed += 1
        print(
            f"PASS {name} ({time.monotonic() - begun:.1f} s){': ' + note if note else ''}",
            flush=True,
        )
        return True


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


class Deployment:
    """Compose project, brought up beside other programs on this machine."""

    def __init__(self) -> None:
        self.port, self.page_port = free_port(), free_port()
        self.token = secrets.token_hex()
        self._environment = os.environ | {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "ANABRANCH_KAFKA_PORT": str(self.port),
            "ANABRANCH_UI_PORT": str(self.page_port),
            "ANABRANCH_UI_TOKEN": self.token,
        }

    def compose(self, *arguments: str, timeout_s: float = 60) -> str:
        """Run ``docker compose ARGUMENTS`` and return its output."""
        command = ["docker", "compose", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        return done.stdout

    def containers(self) -> list[dict[str, str]]:
        """Return all containers of the project, as compose describes them."""
        return [
            json.loads(line)
            for line in self.compose("ps", "--all", "--format", "json").splitlines()
            if line.startswith("{")
        ]

    def inspect(self, service: str, template: str) -> str:
        """Return one fact about the container of ``service``."""
        labels = {"project": PROJECT, "service": service}
        filters = [
            part
            for name, value in labels.items()
            for part in ("--filter", f"label=com.docker.compose.{name}={value}")
        ]
        identifier = _output(["docker", "ps", "--all", "--quiet", *filters]).strip()
        return _output(["docker", "inspect", "--format", template, identifier]).strip()

    def services(self) -> list[str]:
        """Return the names of the project's own long-running services."""
        other = {"kafka", "redis", "topics"}
        return [name for name in self.compose("config", "--services").split() if name not in other]


class Results:
    """Records on the output topic so far, as any consumer would read them."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.delivered: list[Delivered] = []
        self._reader = TopicReader(
            kafka, topic, lambda message: self.delivered.append(delivered(message))
        )
        self._reader.start()

    def wait_for(self, count: int, seconds_max: float) -> None:
        """Wait until there are more than ``count``, or the time is over."""
        end = time.monotonic() + seconds_max
        while len(self.delivered) <= count and time.monotonic() < end:
            time.sleep(0.1)
        assert self._reader.error is None, f"cannot read: {self._reader.error}"

    def close(self) -> None:
        """Leave."""
        self._reader.stop()


def write_traffic(kafka: str, start_ms: int, duration_ms: int, seed: int) -> pl.DataFrame:
    """Write the reports of ``duration_ms`` at once; returns those that count."""
    traffic = Traffic(
        start_ms=start_ms, end_ms=start_ms + duration_ms, rate=400, seed=seed, has_late=False
    )
    return TrafficWriter(kafka, JOB.topics).run(traffic, is_paced=False, closing_ms=3_000).reports()


def check_results(results: Results, reports: pl.DataFrame) -> str:
    """Wait for as many results as the oracle has, and a little longer; compare them."""
    expected = answers(reports, ["tolls"], JOB.window_ms, JOB.free_vehicles, JOB.free_speed)[
        "tolls"
    ]
    results.wait_for(len(expected) - 1, RESULTS_S_MAX)
    results.wait_for(len(expected), EXTRA_S)
    comparison = compare(
        results_of("tolls", expected, JOB.bucket_ms, JOB.partitions), results.delivered
    )
    assert comparison.is_equal(), f"{comparison}"
    return f"{comparison.delivered} results, 0 missing, 0 duplicated, 0 wrong"


def check_state(deployment: Deployment) -> str:
    """Every container runs and is healthy; the one-shot has ended well. One that is just
    being restarted gets its time.
    """
    end = time.monotonic() + HEALTHY_S_MAX
    while True:
        containers = deployment.containers()
        wrong = [
            f"{each['Service']}: {each['State']} {each.get('Health', '')}"
            for each in containers
            if each["Service"] != "topics"
            and (each["State"], each.get("Health")) != ("running", "healthy")
        ]
        if not wrong or time.monotonic() > end:
            break
        time.sleep(1.0)
    assert not wrong, ", ".join(wrong)
    assert deployment.inspect("topics", "{{.State.ExitCode}}") == "0"
    restarts = sum(
        int(deployment.inspect(service, "{{.RestartCount}}")) for service in deployment.services()
    )
    return f"{len(containers)} containers, {restarts} restarts"


def check_rights(deployment: Deployment) -> str:
    """Plain users, read-only file systems, memory limits."""
    for service in deployment.services():
        assert deployment.inspect(service, "{{.Config.User}}") == UID, service
        assert (
            deployment.inspect(service, "{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}}")
            == "true [ALL]"
        ), service
    limits = {
        each["Service"]: int(deployment.inspect(each["Service"], "{{.HostConfig.Memory}}"))
        for each in deployment.containers()
    }
    assert all(limits.values()), f"without a limit: {limits}"
    return f"limits sum up to {sum(limits.values()) / 2**30:.1f} GiB"


def memory_in_use() -> str:
    """Return the memory that the containers use now."""
    lines = _output(
        ["docker", "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"]
    ).splitlines()
    return "; ".join(line.removeprefix(f"{PROJECT}-") for line in lines if line.startswith(PROJECT))


def check_restart(deployment: Deployment, service: str) -> str:
    """SIGKILL every process in the container but its init: the restart policy brings the
    service back, healthy.
    """
    before = int(deployment.inspect(service, "{{.RestartCount}}"))
    deployment.compose("exec", "-T", service, "sh", "-c", "kill -9 -1 || true")
    end = time.monotonic() + HEALTHY_S_MAX
    while time.monotonic() < end:
        is_new = int(deployment.inspect(service, "{{.RestartCount}}")) > before
        if is_new and deployment.inspect(service, "{{.State.Health.Status}}") == "healthy":
            return "restarted"
        time.sleep(0.5)
    message = (
        f"not healthy again within {HEALTHY_S_MAX} s:"
        f" {deployment.inspect(service, '{{json .State}}')}"
    )
    raise AssertionError(message)


def _page_of(port: int, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """(status, what the page shows; nothing if it is not shown)."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/page", headers=headers)
        answer = connection.getresponse()
        return answer.status, json.load(answer) if answer.status == HTTPStatus.OK else {}
    finally:
        connection.close()


def check_page(deployment: Deployment) -> str:
    """Check that the page answers requests with the token alone, and shows every process as running
    and every stage with a bucket.
    """
    status, _ = _page_of(deployment.page_port, {})
    assert status == HTTPStatus.UNAUTHORIZED, f"without the token: {status}"
    status, page = _page_of(deployment.page_port, {"Authorization": f"Bearer {deployment.token}"})
    assert status == HTTPStatus.OK, f"with the token: {status}"
    empty = [name for name, card in page["cards"].items() if card["newest_ms"] is None]
    assert not empty, f"nothing of {', '.join(empty)}"
    assert not page["contact"], page["contact"]
    return f"{len(page['cards'])} cards"


def check_stop(deployment: Deployment) -> str:
    """All of our services end on SIGTERM, in time and by themselves."""
    begun = time.monotonic()
    services = deployment.services()
    deployment.compose("stop", *services, timeout_s=120)
    codes = {service: deployment.inspect(service, "{{.State.ExitCode}}") for service in services}
    assert set(codes.values()) == {"0"}, f"exit codes {codes}"
    took_s = time.monotonic() - begun
    assert took_s <= DOWN_S_MAX, f"took {took_s:.0f} s"
    return f"{len(services)} services, exit code 0 each"


CHECKS: Final = 12


def run_checks(deployment: Deployment, checks: Checks) -> None:
    """All checks in order; ends early where the rest could not pass."""
    checks.run("the compose file is valid", lambda: deployment.compose("config", "--quiet"))
    if not checks.run(
        "the image builds", lambda: deployment.compose("build", timeout_s=1_800) and None
    ):
        return
    if not checks.run(
        "up --wait: everything is healthy",
        lambda: deployment.compose("up", "--detach", "--wait", timeout_s=UP_S_MAX),
    ):
        return
    checks.run("all containers run, the topics are made", lambda: check_state(deployment))
    checks.run("plain users, read-only, limited", lambda: check_rights(deployment))
    kafka = f"localhost:{deployment.port}"
    results = Results(kafka, JOB.outputs["tolls"])
    start_ms = (time.time_ns() // 1_000_000 // JOB.window_ms - 9) * JOB.window_ms
    reports = write_traffic(kafka, start_ms, 3 * JOB.window_ms, seed=1)
    checks.run(
        "records in, results out, equal to the oracle", lambda: check_results(results, reports)
    )
    checks.run("the page shows it", lambda: check_page(deployment))
    second = write_traffic(kafka, start_ms + 4 * JOB.window_ms, 3 * JOB.window_ms, seed=2)
    for service in KILLED:
        checks.run(
            f"{service} comes back after SIGKILL",
            lambda service=service: check_restart(deployment, service),  # type: ignore[misc]
        )
    checks.run(
        "still equal to the oracle", lambda: check_results(results, pl.concat([reports, second]))
    )
    results.close()
    print(f"memory: {memory_in_use()}")
    checks.run("all services stop cleanly", lambda: check_stop(deployment))


def engine() -> str | None:
    """Why there is no docker engine to try it with; None if there is one."""
    if shutil.which("docker") is None:
        return "no docker client on the path"
    for command in (
        ["docker", "version", "--format", "{{.Server.Version}}"],
        ["docker", "compose", "version"],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return f"`{' '.join(command)}` does not answer"
        if done.returncode:
            return f"`{' '.join(command)}` says: {done.stderr.strip()[:200]}"
    return None


def main() -> int:
    """Exit code 0 if all checks passed, or there is no engine; 1 else."""
    reason = engine()
    if reason is not None:
        print(f"0 passed, 0 failed, {CHECKS} skipped: {reason}")
        return 0
    deployment, checks = Deployment(), Checks()
    try:
        run_checks(deployment, checks)
        if checks.failed:
            print(deployment.compose("logs", "--no-color", "--tail", "40", *deployment.services()))
    finally:
        deployment.compose(
            "down", "--volumes", "--remove-orphans", "--timeout", "15", timeout_s=180
        )
    print(
        f"{checks.passed} passed, {checks.failed} failed, {CHECKS - checks.passed - checks.failed}"
        " not run"
    )
    return 0 if checks.failed == 0 and checks.passed == CHECKS else 1


if __name__ == "__main__":
    sys.exit(main())
