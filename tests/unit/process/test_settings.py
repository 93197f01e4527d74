"""Settings come from the command line, then the environment, then defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.process.settings import read_settings
from anabranch.protocol.errors import ConfigurationError

_COMPLETE = [
    "--pipeline",
    "p.yaml",
    "--name",
    "reports",
    "--kafka",
    "localhost:9092",
    "--state-dir",
    "state",
]


def test_command_line_and_defaults() -> None:
    settings = read_settings("ingestion", [*_COMPLETE, "--metrics-port", "8080"])
    assert (settings.pipeline, settings.name, settings.kafka, settings.state_dir) == (
        Path("p.yaml"),
        "reports",
        "localhost:9092",
        Path("state"),
    )
    assert (settings.redis, settings.metrics_host, settings.metrics_port, settings.log_level) == (
        None,
        "127.0.0.1",
        8080,
        "info",
    )
    assert not settings.check_config


def test_environment_fills_what_the_command_line_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_REDIS", "redis://localhost:1/0")
    monkeypatch.setenv("ANABRANCH_NAME", "of-environment")
    settings = read_settings("ingestion", _COMPLETE)
    assert settings.redis == "redis://localhost:1/0"
    assert settings.name == "reports"


def test_every_missing_setting_is_named_by_its_option_and_variable() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_settings("ingestion", ["--name", "reports"])
    lines = str(caught.value).splitlines()
    assert all(line.endswith(": is missing") for line in lines)
    assert [line.split(":")[0] for line in lines] == [
        "--pipeline (or ANABRANCH_PIPELINE)",
        "--kafka (or ANABRANCH_KAFKA)",
        "--state-dir (or ANABRANCH_STATE_DIR)",
    ]


def test_a_port_out_of_range_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="--metrics-port"):
        read_settings("ingestion", [*_COMPLETE, "--metrics-port", "65536"])


@pytest.mark.parametrize(
    "service", ["ingestion", "processing", "delivery", "consistency_manager", "contract_broker"]
)
def test_help_names_the_exit_codes_what_is_required_and_an_example(
    service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        read_settings(service, ["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "Exit codes" in out
    assert out.count("(required)") == 4
    example = out.partition(f"python -m anabranch.{service} --pipeline")[2].replace("\\\n", " ")
    assert read_settings(service, ["--pipeline", *example.split()]).kafka == "broker-1:9092"
