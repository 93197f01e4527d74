"""Imports go one way, and the pure layers stay pure: read from the syntax trees, with nothing but
the standard library.

The import-linter contracts say the same about imports; this one also finds imports inside functions
and the banned calls, needs no import to succeed, and each rule is shown to find what it forbids.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

import pytest

from harness.syntax import dotted, nodes

SERVICES = (
    "ingestion",
    "processing",
    "delivery",
    "consistency_manager",
    "contract_broker",
    "agent",
)
RANKS = {
    "protocol": 0,
    "codec": 1,
    "pipeline": 2,
    "ports": 3,
    "runtime": 4,
    "adapters": 5,
    **dict.fromkeys(SERVICES, 6),
    "client": 7,
    "up": 7,
    "drills": 7,
    "operating": 8,
    "dashboard": 9,
    "cli": 10,
}
APART = (frozenset(SERVICES), frozenset({"client", "up"}), frozenset({"client", "drills"}))
STARTS_SERVICES = ("cli", "dashboard", "operating", "up", "drills")
DRIVES_RUNTIME = "anabranch.adapters.spark."
"""Spark calls our reader and writer inside its tasks, so this adapter alone stands above the
runtime.
"""

FOR_USERS = ("stateful",)
"""What users' functions import; no layer of the services."""

PURE = ("protocol", "codec")
ADAPTED = (
    "confluent_kafka",
    "cryptography",
    "redis",
    "pyspark",
    "py4j",
    "time",
    "random",
    "secrets",
)
"""Imported by adapters alone. The layers on top (client, up, drills, operating, dashboard, cli)
run on the user's side and are free.
"""

APPLICATIONS = {("processing", "pyspark"), ("codec", "cryptography")}
"""A stage is a Spark application: its query is made of data frames. What Spark calls back is
in the adapter. To check a signature is arithmetic on bytes; what makes and keeps keys is an adapter.
"""

IMPURE_STANDARD = {
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "select",
    "signal",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
}
IMPURE_CALLS = (
    "time.",
    "random.",
    "secrets.",
    "os.environ",
    "os.getenv",
    "os.urandom",
    "datetime.now",
    "datetime.utcnow",
    "uuid.uuid",
    "uuid4",
)
IMPURE_NAMES = ("print", "open", "input", "exec", "eval")


def layer_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports_of(source: str) -> Iterator[tuple[int, str]]:
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "." * node.level
            if node.module == "anabranch":
                yield from ((node.lineno, f"anabranch.{alias.name}") for alias in node.names)


def wrong_directions(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    wrong = []
    for line, imported in imports_of(source):
        other = layer_of(imported)
        if (
            not imported.startswith("anabranch.")
            or other == layer
            or layer not in RANKS
            or other not in RANKS
        ):
            continue
        peers = any(layer in group and other in group for group in APART)
        starts = layer in STARTS_SERVICES and other in SERVICES
        drives = (
            layer == "adapters" and other == "runtime" and not module.startswith(DRIVES_RUNTIME)
        )
        if RANKS[other] > RANKS[layer] or peers or starts or drives:
            wrong.append(f"{module}:{line}: {layer} imports {imported}")
    return wrong


def foreign_imports(module: str, source: str) -> list[str]:
    """Libraries where they do not belong: any in protocol; those of the outside world
    elsewhere than in adapters.
    """
    layer = layer_of(module)
    wrong = []
    for line, imported in imports_of(source):
        top = imported.split(".")[0]
        if top in {"anabranch", "__future__"}:
            continue
        if layer == "protocol" and (top not in sys.stdlib_module_names or top in IMPURE_STANDARD):
            wrong.append(f"{module}:{line}: protocol imports {imported}")
        elif (
            top in ADAPTED
            and (layer, top) not in APPLICATIONS
            and layer in {"protocol", "codec", "pipeline", "ports", "runtime", *SERVICES}
        ):
            wrong.append(f"{module}:{line}: {imported} belongs behind a port, in adapters")
    return wrong


def impure_calls(module: str, source: str) -> list[str]:
    wrong = []
    for node in nodes(source):
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            if name.startswith(IMPURE_CALLS):
                wrong.append(f"{module}:{node.lineno}: {name}")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {*IMPURE_NAMES, "uuid4"}
        ):
            wrong.append(f"{module}:{node.lineno}: {node.func.id}()")
    return wrong


def prints(module: str, source: str) -> list[str]:
    calls = (
        node
        for node in nodes(source)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    return [
        f"{module}:{node.lineno}: print()"
        for node in calls
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]


def test_imports_go_one_way(modules: dict[str, str]) -> None:
    assert [
        line for name, source in modules.items() for line in wrong_directions(name, source)
    ] == []


def test_libraries_stay_where_they_belong(modules: dict[str, str]) -> None:
    assert [
        line for name, source in modules.items() for line in foreign_imports(name, source)
    ] == []


def test_pure_layers_have_no_clock_no_chance_no_input_or_output(modules: dict[str, str]) -> None:
    pure = {name: source for name, source in modules.items() if layer_of(name) in PURE}
    assert [line for name, source in pure.items() for line in impure_calls(name, source)] == []


def test_services_log_and_do_not_print(modules: dict[str, str]) -> None:
    quiet = {name: source for name, source in modules.items() if layer_of(name) != "cli"}
    assert [line for name, source in quiet.items() for line in prints(name, source)] == []


def test_every_layer_is_known(modules: dict[str, str]) -> None:
    """A new folder gets a place in the order before anything imports it."""
    assert {layer_of(name) for name in modules} - {"", *RANKS, *FOR_USERS} == set()


def test_a_service_package_is_imported_by_nothing_but_itself(modules: dict[str, str]) -> None:
    wrong = [
        f"{name}:{line}: {imported}"
        for name, source in modules.items()
        for line, imported in imports_of(source)
        if layer_of(imported) in SERVICES
        and imported.startswith("anabranch.")
        and layer_of(name) != layer_of(imported)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("anabranch.protocol.log.buckets", "from anabranch.codec import blocks"),
        ("anabranch.protocol.log.buckets", "def f():\n    import anabranch.ports"),
        ("anabranch.ingestion.service", "from anabranch.delivery import service"),
        ("anabranch.ingestion.service", "from anabranch import delivery"),
        ("anabranch.runtime.service", "import anabranch.adapters.kafka.log"),
        ("anabranch.adapters.kafka.log", "from anabranch.runtime.block_writer import BlockWriter"),
        ("anabranch.up.supervisor", "import anabranch.ingestion.service"),
    ],
)
def test_a_wrong_direction_is_found(module: str, source: str) -> None:
    assert len(wrong_directions(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("anabranch.protocol.log.buckets", "import time"),
        ("anabranch.protocol.log.buckets", "import pyarrow as pa"),
        ("anabranch.runtime.service", "from confluent_kafka import Consumer"),
        ("anabranch.delivery.service", "import time"),
    ],
)
def test_a_library_out_of_place_is_found(module: str, source: str) -> None:
    assert len(foreign_imports(module, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "time.monotonic()",
        "datetime.now()",
        "random.random()",
        "uuid4()",
        "uuid.uuid4()",
        "os.environ['X']",
        "print(1)",
    ],
)
def test_an_impure_call_is_found(source: str) -> None:
    assert impure_calls("anabranch.protocol.x", source)
