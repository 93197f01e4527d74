"""The processes of owners, each under a supervisor of its own, started by ``anabranch up`` as a
person would.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.local import state_file
from anabranch.local.drills import Drill
from anabranch.local.processes import MARK, mark_of, marked
from anabranch.protocol.errors import Unavailable
from demo.deployment import DeploymentError
from harness.waiting import wait_until
from moves.schedule import Party

FILES: Final = Path(__file__).parent / "pipelines"
CONTRACT: Final = "north-south"
_ANABRANCH: Final = Path(sys.executable).with_name("anabranch")
_COMMAND_S: Final = 600
_KILLED_WITHIN_S: Final = 60

BROKER, GUEST = "broker", "south-for-north"
NORTH, SOUTH = "north", "south"


class Layout(NamedTuple):
    """Layout of the run: its participants, and what each runs."""

    files: Path
    """With the pipeline files, and the terms of the first contract."""
    runs: Mapping[str, tuple[str, str, Sequence[str]]]
    """Pipeline file's owner, key's owner and services of each deployment."""
    contracts: Sequence[tuple[str, str]] = ((NORTH, SOUTH),)
    """Buyer and seller of each."""

    @property
    def owners(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys(each for parties in self.contracts for each in parties))


TWO: Final = Layout(
    FILES,
    {
        BROKER: ("north", "", ("consistency_manager",)),
        NORTH: (
            "north",
            "north",
            ("ingestion", "processing/north.0", "delivery", "agent", "contract_broker"),
        ),
        SOUTH: ("south", "south", ("agent", "contract_broker")),
        GUEST: ("north", "south", ("processing/south.0",)),
    },
)

PLACES: Final = {
    Party.BUYERS_NODE: (NORTH, "processing/north.0"),
    Party.SELLERS_NODE: (GUEST, "processing/south.0"),
    Party.BUYERS_AGENT: (NORTH, "agent/north"),
    Party.SELLERS_AGENT: (SOUTH, "agent/south"),
    Party.BUYERS_BROKER: (NORTH, "contract_broker/north"),
    Party.SELLERS_BROKER: (SOUTH, "contract_broker/south"),
    Party.KAFKA: (BROKER, "kafka/kafka"),
}
"""The deployment in which a party runs, and what it is called there."""


class Owners:
    """Mostly north, which buys, and south, which sells; all in ``folder``. ``stop`` ends all of
    it.
    """

    def __init__(self, folder: Path, layout: Layout = TWO) -> None:
        self._folder, self._layout = folder, layout
        self._up: list[str] = []
        self.kafka = ""

    # ---------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Everything but a contract.

        Raises:
            DeploymentError: something does not start.
        """
        self._start(BROKER)
        found = state_file.read(self._folder / BROKER)
        assert found is not None, "it is up"
        self.kafka = found.kafka
        for name in self._layout.owners:
            self.run("topics", name, "--create", "--kafka", self.kafka)
            self.run("keys", name, "new", str(self._key(name)))
            self.run("keys", name, "publish", "--kafka", self.kafka)
        failed: list[Exception] = []

        def start(name: str) -> None:
            try:
                self._start(name)
            except (DeploymentError, subprocess.SubprocessError) as error:
                failed.append(error)

        others = [name for name in self._layout.runs if name != BROKER]
        threads = [threading.Thread(target=start, args=(name,)) for name in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def _start(self, name: str) -> None:
        file, key, services = self._layout.runs[name]
        only = (word for service in services for word in ("--only", service))
        where = ("--kafka", self.kafka) if self.kafka else ()
        self._up.append(name)
        self.run("up", file, "-d", *self._state(name), *where, *only, key=key)

    def sign(self) -> None:
        """Each buyer proposes its contract, and the seller signs it. From here on stages move."""
        now = datetime.now(UTC)
        begins, ends = now - timedelta(hours=1), now + timedelta(days=1)
        valid = f"valid: {{from: {begins:%Y-%m-%dT%H:%M:%SZ}, to: {ends:%Y-%m-%dT%H:%M:%SZ}}}"
        text = (self._layout.files / "terms.yaml").read_text(encoding="utf-8")
        text = re.sub(r"(?m)^valid: .*$", valid, text)
        for buyer, seller in self._layout.contracts:
            name = f"{buyer}-{seller}"
            for key, value in {"contract": name, "buyer": buyer, "seller": seller}.items():
                text = re.sub(rf"(?m)^{key}: .*$", f"{key}: {value}", text)
            terms = self._folder / f"{name}.yaml"
            terms.write_text(text, encoding="utf-8")
            self.run("contracts", buyer, "propose", str(terms), "--kafka", self.kafka)
            self.run("contracts", seller, "sign", name, "--kafka", self.kafka)

    def resume(self, party: str) -> None:
        """Resume the contract that ``party`` has suspended, as its operator."""
        self.run("contracts", party, "resume", CONTRACT, "--kafka", self.kafka)

    def stop_all_but_kafka(self) -> None:
        """Nothing that writes an output runs any more."""
        for name in [each for each in self._up if each != BROKER]:
            self.run("down", self._layout.runs[name][0], *self._state(name))
            self._up.remove(name)

    def stop(self) -> None:
        """Stop all deployments and kill what does not stop in order. Idempotent."""
        for name in sorted(self._up, key=lambda each: each == BROKER):
            try:
                self.run("down", self._layout.runs[name][0], *self._state(name))
            except (DeploymentError, subprocess.SubprocessError):
                self._kill_all(name)
        self._up.clear()

    def _kill_all(self, name: str) -> None:
        folder = self._folder / name
        supervisor = state_file.Lock(folder).holder()
        left = [*([] if supervisor is None else [supervisor]), *marked(MARK, mark_of(folder))]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---------------------------------------------------------------- what runs

    def kill(self, party: Party) -> int:
        """SIGKILL to it and to all below it, when it runs; when, in ms since 1970, before it was
        done.

        Raises:
            AssertionError: it does not run for a long time.
        """
        name, label = PLACES[party]

        def done() -> int:
            at_ms = time.time_ns() // 1_000_000
            try:
                Drill(self._folder / name).kill(label)
            except Unavailable:
                return 0
            return at_ms

        return wait_until(done, _KILLED_WITHIN_S, f"{label} is killed", every_s=0.1, stretch=1)

    def down(self) -> list[str]:
        """Return the processes that do not run now; those that were given up are named as failed.

        Raises:
            DeploymentError: a supervisor has ended.
        """
        found = []
        for name in self._up:
            state = state_file.read(self._folder / name)
            if state is None or state_file.Lock(self._folder / name).holder() is None:
                raise DeploymentError(f"the supervisor of {name} has ended: {self._folder / name}")
            found += [
                f"{name}: {row.service}/{row.name} is {row.state}"
                for row in state.processes
                if row.state != "running"
            ]
        return found

    def restarts(self) -> dict[str, int]:
        """How often each process was started again, by deployment and label."""
        return {
            f"{name}: {row.service}/{row.name}": row.restarts
            for name in self._up
            if (state := state_file.read(self._folder / name)) is not None
            for row in state.processes
            if row.restarts
        }

    def supervisors(self) -> list[int]:
        """Their process ids."""
        states = (state_file.read(self._folder / name) for name in self._up)
        return [state.pid for state in states if state is not None]

    # ---------------------------------------------------------------- commands

    def _state(self, name: str) -> tuple[str, str]:
        return "--state-dir", str(self._folder / name)

    def _key(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    def run(self, what: str, file: str, *arguments: str, key: str | None = None) -> str:
        """Run a command with the pipeline file of ``file`` and the key of ``key``, else of the
        file's owner. Return what it printed.

        Raises:
            DeploymentError: it failed.
        """
        verbs = arguments[:1] if what in ("keys", "contracts") else ()
        rest = arguments[len(verbs) :]
        command = [
            str(_ANABRANCH),
            what,
            *verbs,
            "-f",
            str(self._layout.files / f"{file}.yaml"),
            *rest,
        ]
        environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        path = self._key(file if key is None else key)
        if path.exists():
            environment["ANABRANCH_SIGNING_KEY_FILE"] = str(path)
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            env=environment,
        )
        if done.returncode:
            shown = (done.stdout + done.stderr)[-2_000:]
            raise DeploymentError(f"{' '.join(command)}: exit code {done.returncode}: {shown}")
        return done.stdout
