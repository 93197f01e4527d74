"""A process that looks like a service to a supervisor: ``fake_service.py STATE_DIR SERVICE NAME
BEHAVIOUR``.

Behaviours: ``well``; ``deaf`` (does not hear SIGTERM); ``children`` (has a child in a session of
    its own); ``exit N`` (ends at once).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from prometheus_client import CollectorRegistry

from anabranch.adapters.system.clock import SystemClock
from anabranch.process.frame import write_run_file
from anabranch.process.health import HealthServer


def run(state_dir: Path, service: str, name: str, behaviour: str) -> int:
    """Until told to stop; the exit code."""
    print(json.dumps({"event": "starting"}), flush=True)
    if behaviour.startswith("exit "):
        print(json.dumps({"event": "stopped", "error": f"told by {behaviour}"}), flush=True)
        return int(behaviour.split()[1])
    stopping = threading.Event()
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    if behaviour == "children":
        subprocess.Popen(["sleep", "120"], start_new_session=True)
    state = "running" if service == "processing" else "waiting"
    report = {
        "pid": os.getpid(),
        "state": state,
        "last_bucket_ms": 250,
        "lag_ms": 5,
        "waiting_for": "partition 1",
        "error": None,
    }
    health = HealthServer("127.0.0.1", 0, lambda: report, CollectorRegistry(), SystemClock())
    health.start()
    write_run_file(state_dir, service, name, health.port)
    stopping.wait()
    with (state_dir / "ended").open("a") as file:
        file.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), *sys.argv[2:]))
