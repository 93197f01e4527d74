"""Secrets stay where they were put: whole processes are run with planted ones, and all that
others can see is searched for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import KafkaSecurity, security_from_environment
from anabranch.adapters.redis.index import RedisIndex
from anabranch.local.probe import get, metrics_port
from anabranch.process.settings import ServiceSettings, read_settings
from anabranch.protocol.errors import ConfigurationError, Unavailable
from harness.secure_kafka import Secured
from harness.waiting import wait_until

FILE = Path(__file__).parent / "pipeline.yaml"
PLANTED = "planted-c0ffee"
DEADLINE_S = 60


def environment(**more: str) -> dict[str, str]:
    """Ours without what would set up security, and ``more``."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")
    } | more


def of(secured: Secured, who: str, **more: str) -> dict[str, str]:
    return environment(
        ANABRANCH_KAFKA=secured.broker.address,
        ANABRANCH_KAFKA_SECURITY_PROTOCOL="SASL_SSL",
        ANABRANCH_KAFKA_SASL_USERNAME=who,
        ANABRANCH_KAFKA_SSL_CA=str(secured.authority.certificate),
        **more,
    )


@contextmanager
def process(
    service: str, name: str, state_dir: Path, variables: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a service and yield it with its log."""
    log = state_dir / "log"
    state_dir.mkdir(exist_ok=True)
    arguments = [
        sys.executable,
        "-m",
        f"anabranch.{service}",
        "--pipeline",
        str(FILE),
        "--name",
        name,
        "--state-dir",
        str(state_dir),
    ]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [*arguments, "--log-level", "debug"], stderr=file, stdout=file, env=variables
        ) as run,
    ):
        try:
            yield run, log
        finally:
            run.terminate()
            run.wait(30)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("service", "name"),
    [("ingestion", "reports"), ("delivery", "out"), ("consistency_manager", "secure")],
)
@pytest.mark.parametrize("by_file", [True, False], ids=["file", "environment"])
def test_a_service_with_a_password_shows_it_nowhere(
    secured: Secured, tmp_path: Path, service: str, name: str, by_file: bool
) -> None:
    who = f"secure.{service}.{name}" if service != "consistency_manager" else f"secure.{service}"
    secret = secured.passwords[who]
    (tmp_path / "secret").write_text(secret + "\n")
    (tmp_path / "secret").chmod(0o600)
    given = {"PASSWORD_FILE": str(tmp_path / "secret")} if by_file else {"PASSWORD": secret}
    variables = of(
        secured, who, **{f"ANABRANCH_KAFKA_SASL_{key}": value for key, value in given.items()}
    )
    # An index that is not there: its errors must not tell either.
    variables |= {"ANABRANCH_REDIS": f"redis://user:{PLANTED}@127.0.0.1:9/0"}
    state = tmp_path / "state"
    with process(service, name, state, variables) as (run, log):

        def port() -> int | None:
            assert run.poll() is None, log.read_text()
            return metrics_port(state, service, name, run.pid)

        found = wait_until(port, DEADLINE_S, "no port")
        assert found is not None
        wait_until(
            lambda: (get(found, "/readyz") or (0, b""))[0] == 200 or port() is None,
            DEADLINE_S,
            "not ready",
        )
        seen = [Path(f"/proc/{run.pid}/cmdline").read_bytes()]
        for path in ("/statusz", "/metrics", "/readyz", "/healthz", "/", "/environ", "/settings"):
            answer = get(found, path, 20)
            assert answer is not None
            seen.append(answer[1])
    assert run.returncode == 0
    seen += [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    for text in seen:
        assert secret.encode() not in text
        assert PLANTED.encode() not in text


@pytest.mark.integration
def test_a_wrong_password_is_not_repeated(secured: Secured, tmp_path: Path) -> None:
    variables = of(secured, "secure.ingestion.reports", ANABRANCH_KAFKA_SASL_PASSWORD=PLANTED)
    with process("ingestion", "reports", tmp_path, variables) as (run, log):
        assert run.wait(DEADLINE_S) == 1
    text = log.read_text()
    assert PLANTED not in text
    assert "authentication" in text.lower()


@pytest.mark.integration
def test_the_commands_use_the_same_settings(secured: Secured, tmp_path: Path) -> None:
    def run(who: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "anabranch.cli", *words, "--kafka", secured.broker.address]
        variables = of(secured, who, ANABRANCH_KAFKA_SASL_PASSWORD=secured.passwords[who])
        return subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            cwd=tmp_path,
        )

    made = run("secure.operator", "topics", "-f", str(FILE), "--create")
    assert made.returncode == 0, made.stderr
    denied = run("secure.ingestion.payments", "topics", "-f", str(FILE), "--create")
    assert denied.returncode != 0
    foreign = run(
        "secure.consumer.audit", "tail", "out", "-f", str(FILE), "--from-beginning", "--count", "1"
    )
    assert foreign.returncode != 0, "a consumer of another output sees nothing"
    for done in (made, denied, foreign):
        assert not [
            secret for secret in secured.passwords.values() if secret in done.stdout + done.stderr
        ]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"SASL_PASSWORD": PLANTED},
            "SASL_PASSWORD is set, which needs ANABRANCH_KAFKA_SECURITY_PROTOCOL=SASL_SSL",
        ),
        ({"SECURITY_PROTOCOL": "SSL", "SASL_USERNAME": "u"}, "SASL_USERNAME is set, which needs"),
        ({"SSL_CA": "ca.pem"}, "SSL_CA is set, which needs"),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "ANABRANCH_KAFKA_SECURITY_PROTOCOL"),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_PASSWORD": PLANTED},
            "needs ANABRANCH_KAFKA_SASL_USERNAME",
        ),
        ({"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "u"}, "SASL_PASSWORD_FILE"),
        ({"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "u", "SASL_PASSWORD": ""}, "is empty"),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_USERNAME": "u", "SASL_PASSWORD_FILE": "none"},
            "none cannot be read",
        ),
        (
            {
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_USERNAME": "u",
                "SASL_PASSWORD": PLANTED,
                "SASL_PASSWORD_FILE": "none",
            },
            "both set",
        ),
        (
            {
                "SECURITY_PROTOCOL": "SASL_SSL",
                "SASL_USERNAME": "u",
                "SASL_PASSWORD": PLANTED,
                "SASL_MECHANISM": "X",
            },
            "SASL_MECHANISM",
        ),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE": "c.pem"}, "belong together"),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CA": "none.pem"}, "none.pem cannot be read"),
    ],
)
def test_mistakes_are_reported_without_the_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(f"ANABRANCH_KAFKA_{name}", value)
    with pytest.raises(ConfigurationError) as caught:
        KafkaEventLog("127.0.0.1:9")
    assert message in str(caught.value)
    text = "".join(str(error) + repr(error) for error in (caught.value, caught.value.__cause__))
    assert PLANTED not in text


def test_values_do_not_show_their_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_USERNAME": "u",
        "SASL_PASSWORD": PLANTED,
    }.items():
        monkeypatch.setenv(f"ANABRANCH_KAFKA_{name}", value)
    log = KafkaEventLog("127.0.0.1:9")
    assert log.settings().administrator()["sasl.password"] == PLANTED
    settings = ServiceSettings(
        pipeline=FILE, name="n", kafka="k", state_dir=FILE, redis=f"redis://u:{PLANTED}@h/0"
    )
    found: list[object] = [log.settings(), security_from_environment(), settings]
    for one in found:
        assert PLANTED not in f"{one!r} {one}"
    dumped = security_from_environment()
    assert isinstance(dumped, KafkaSecurity)
    assert PLANTED not in dumped.model_dump_json()


def test_a_password_is_rejected_where_others_see_it(tmp_path: Path) -> None:
    url = f"redis://user:{PLANTED}@127.0.0.1:9/0"
    with pytest.raises(ConfigurationError) as caught:
        read_settings(
            "ingestion",
            ["--pipeline", "p", "--name", "n", "--kafka", "k", "--state-dir", "s", "--redis", url],
        )
    assert PLANTED not in str(caught.value)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "anabranch.cli",
            "up",
            "-f",
            str(FILE),
            "--redis",
            url,
            "--state-dir",
            str(tmp_path),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "ANABRANCH_REDIS" in done.stderr
    assert PLANTED not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "variables", [{"KAFKA_SECURITY_PROTOCOL": "SSL"}, {"REDIS_PASSWORD": PLANTED}]
)
def test_the_embedded_servers_do_not_pretend(tmp_path: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "anabranch.cli",
            "up",
            "-f",
            str(FILE),
            "--state-dir",
            str(tmp_path),
        ],
        env=environment(**{f"ANABRANCH_{name}": value for name, value in variables.items()}),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "has no security" in done.stderr
    assert PLANTED not in done.stderr + done.stdout


def test_the_index_does_not_repeat_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_REDIS_PASSWORD", PLANTED)
    with pytest.raises(Unavailable) as caught:
        RedisIndex("redis://127.0.0.1:9/0").keys("")
    assert PLANTED not in str(caught.value)
    with pytest.raises(ConfigurationError) as rejected:
        RedisIndex(f"redis//user:{PLANTED}@127.0.0.1")
    assert (
        PLANTED not in f"{rejected.value}"
        f" {rejected.value.__context__ if not rejected.value.__suppress_context__ else ''}"
    )
    monkeypatch.setenv("ANABRANCH_REDIS_TLS_CA", "ca.pem")
    with pytest.raises(ConfigurationError, match="rediss://"):
        RedisIndex("redis://127.0.0.1:9/0")
