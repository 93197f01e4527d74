"""Makes what the other systems need, once for each machine, outside the checkout: virtual
environments and jars.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir
from anabranch.protocol.errors import ConfigurationError

_INSTALL_TIMEOUT_S: Final = 1_200


def run(command: list[str], timeout_s: int) -> None:
    """Run ``command`` to its end.

    Raises:
        ConfigurationError: it failed; the text has the end of what it said.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        message = f"{' '.join(command[:4])} ... failed: {(done.stdout + done.stderr)[-2_000:]}"
        raise ConfigurationError(message)


def virtual_environment(name: str, requirements: Path) -> Path:
    """Path of the Python of an environment with what ``requirements`` lists. A mark written last
    says for which requirements it is complete.

    Raises:
        ConfigurationError: something could not be installed.
    """
    folder = cache_dir() / name
    python = folder / "bin" / "python"
    mark = folder / "complete"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if python.exists() and mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)], _INSTALL_TIMEOUT_S)
    run(
        [
            *(str(python), "-m", "pip", "install", "-q"),
            *("--require-hashes", "--no-deps", "-r", str(requirements)),
        ],
        _INSTALL_TIMEOUT_S,
    )
    mark.write_text(wanted)
    return python


def jar(group: str, artifact: str, version: str) -> Path:
    """Path of a jar of Maven Central."""
    # Imported here: needed once per machine, and the import takes a third of a second.
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=cache_dir() / "maven", timeout=60)
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())
