"""Settings of one service process, from the command line, else the environment (``ANABRANCH_...``),
else defaults.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.pipeline.addresses import holds_password
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVIRONMENT_PREFIX = "ANABRANCH_"
LogLevel = Literal["debug", "info", "warning", "error"]


class ServiceSettings(BaseSettings):
    """Settings that are not in the pipeline file. ``redis`` may hold a password: never log it."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    pipeline: Path
    name: str = Field(min_length=1, max_length=160)
    kafka: str = Field(min_length=1)
    redis: str | None = Field(default=None, repr=False)
    state_dir: Path
    offers: Path | None = None
    checkpoint_store: str | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    log_level: LogLevel = "info"
    check_config: bool = False
    restarts: int = Field(default=0, ge=0)


_EPILOG = """\
Every option may be given as an environment variable instead: ANABRANCH_PIPELINE, ANABRANCH_NAME,
ANABRANCH_KAFKA ...
TLS, users and passwords of Kafka and Redis come by the environment or by files that it names, never
by an option: docs/security.md.
The process serves /healthz, /readyz, /statusz and /metrics, logs JSON to stderr and stops cleanly
on SIGTERM.

Exit codes: 0 stopped, 1 unexpected error, 2 wrong settings or pipeline file, 3 a newer process
replaced this one, 4 the stage's function failed.

Example:
  python -m anabranch.{service} --pipeline pipeline.yaml --name {name} \\
      --kafka broker-1:9092 --state-dir /var/lib/anabranch
"""

_NAMES: Final = {
    "ingestion": "which source; of one with shards, SOURCE.SHARD",
    "processing": "which node: PARTICIPANT.N, or as the pipeline file names it",
    "delivery": "which output; of one with shards, OUTPUT.SHARD",
    "consistency_manager": "the pipeline's name",
    "contract_broker": "the participant, as `federation` in the pipeline file names it",
    "agent": "the participant, as `federation` in the pipeline file names it",
    "auditor": "the auditor, as `federation` in the pipeline file names it",
}
"""Meaning of ``--name`` for each service."""
_EXAMPLES: Final = {
    "ingestion": "reports",
    "processing": "local.0",
    "delivery": "tolls",
    "consistency_manager": "toll-road",
    "contract_broker": "north",
    "agent": "north",
    "auditor": "audit",
}
"""Example of a process name for each service, from the toll road."""


def argument_parser(service: str) -> argparse.ArgumentParser:
    """Return the parser of ``python -m anabranch.<service>``'s command line. Omitted options are
    absent from its result.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m anabranch.{service}",
        description=f"Runs the {service} service of one pipeline.",
        epilog=_EPILOG.format(service=service, name=_EXAMPLES[service]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--pipeline", type=Path, metavar="FILE", help="the pipeline file (required)"
    )
    parser.add_argument("--name", help=f"{_NAMES[service]} (required)")
    parser.add_argument(
        "--kafka",
        metavar="ADDR",
        help="bootstrap address of the brokers, HOST:PORT[,HOST:PORT...] (required)",
    )
    parser.add_argument(
        "--redis",
        metavar="URL",
        help=(
            "redis://HOST:PORT/DB or unix:///PATH of the index; without it: no index; no password"
            " here"
        ),
    )
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="where this process may keep files (required)"
    )
    parser.add_argument(
        "--offers",
        type=Path,
        metavar="FILE",
        help="of a node that runs what this participant offers: its own pipeline file",
    )
    parser.add_argument(
        "--checkpoint-store",
        metavar="URL",
        help=(
            "of a node: where its checkpoints are stored for nodes on other machines,"
            " file:///FOLDER or s3://BUCKET/FOLDER; without it: only in --state-dir"
        ),
    )
    parser.add_argument(
        "--metrics-host",
        metavar="HOST",
        help="where to serve health and metrics (default 127.0.0.1)",
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="N", help="its port; 0 takes any free one (default)"
    )
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], help="default info"
    )
    parser.add_argument(
        "--restarts",
        type=int,
        metavar="N",
        help="how often a supervisor has restarted this process; for metrics",
    )
    parser.add_argument(
        "--check-config", action="store_true", help="check settings and pipeline file, then exit"
    )
    return parser


def read_settings(service: str, arguments: Sequence[str]) -> ServiceSettings:
    """Return the settings from ``arguments`` and the environment.

    Raises:
        ConfigurationError: settings are missing or wrong; the text names each by its option.
        SystemExit: argparse, on ``--help`` (0) and unknown options (2).
    """
    given = vars(argument_parser(service).parse_args(arguments))
    if holds_password(str(given.get("redis", ""))):
        raise ConfigurationError(
            "--redis holds a password, which others see on a command line: set ANABRANCH_REDIS, or"
            " ANABRANCH_REDIS_PASSWORD_FILE"
        )
    try:
        return ServiceSettings(**given)
    except ValidationError as error:
        lines = []
        for mistake in error.errors():
            option = str(mistake["loc"][0]) if mistake["loc"] else "settings"
            name = option.removeprefix(ENVIRONMENT_PREFIX.lower())
            lines.append(
                f"--{name.replace('_', '-')} (or {ENVIRONMENT_PREFIX}{name.upper()}):"
                f" {_describe(mistake['type'], mistake['msg'])}"
            )
        raise ConfigurationError("\n".join(lines)) from error


def _describe(kind: str, text: str) -> str:
    """Return a description of an error; replaces pydantic's text where that is about its fields."""
    return "is missing" if kind == "missing" else text
