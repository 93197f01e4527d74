"""Protobuf schemas of a registry as file descriptors, whatever form the registry has them in.

Confluent's registry answers with serialized descriptors if asked to; others keep what a producer
registered, which for most is the text of a ``.proto`` file. The Protobuf compiler translates such
text, in a process of its own: the text comes from another program, and the compiler explains its
errors.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from anabranch.codec.writer_schema import SchemaDocument
from anabranch.protocol.errors import ConfigurationError, Unavailable

_COMPILE_S: Final = 30
"""Timeout of one compilation, in seconds. It takes a tenth of one; the machine may be busy."""
_ERROR_CHARACTERS_MAX: Final = 400
"""Maximum length of the compiler's message in an error, in characters."""
_SOURCE: Final = "anabranch_compiled.proto"
"""Name of the text for the compiler: never the registry's, which could be any path."""
_BUILT_IN: Final = re.compile(r"(google/(?:protobuf|type)|confluent(?:/types?)?)/([a-z_]+)\.proto")
"""Files that producers import without registering them, as Confluent's serializers do."""


def file_of(name: str, content: str, before: Iterable[SchemaDocument]) -> SchemaDocument:
    """Return the descriptor of the file ``name``, which a registry has as ``content``: a serialized
    descriptor in base64, or text. ``before`` holds the files that it imports, except built-in ones.

    Raises:
        ConfigurationError: ``content`` is neither.
        Unavailable: the compiler did not end in time.
    """
    found = _serialized(content)
    if found is None:
        found = _compiled(content, before)
    found.name = name
    return SchemaDocument(name, found.SerializeToString(deterministic=True))


def with_built_in(parts: Iterable[SchemaDocument]) -> tuple[SchemaDocument, ...]:
    """Return ``parts`` after the built-in files that they import, directly or not."""
    given = [FileDescriptorProto.FromString(part.content) for part in parts]
    built_in = _built_in([name for each in given for name in each.dependency])
    return (*_parts(built_in), *_parts(given))


def _parts(files: Iterable[FileDescriptorProto]) -> Iterator[SchemaDocument]:
    for each in files:
        yield SchemaDocument(each.name, each.SerializeToString(deterministic=True))


def _serialized(content: str) -> FileDescriptorProto | None:
    try:
        found = FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found


def _built_in(names: Iterable[str]) -> list[FileDescriptorProto]:
    """Return the built-in ones of the files ``names``, each after those that it imports."""
    found: dict[str, FileDescriptorProto] = {}

    def add(name: str) -> None:
        match = _BUILT_IN.fullmatch(name)
        if match is None or name in found:
            return
        folder = match[1].replace("/", ".")
        package = folder if folder.startswith("google") else f"{_CONFLUENT}{folder}"
        try:
            module = import_module(f"{package}.{match[2]}_pb2")
        except ImportError:
            return  # the pool says which file is missing
        made = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(made)
        for each in made.dependency:
            add(each)
        found[name] = made

    for name in names:
        add(name)
    return list(found.values())


_CONFLUENT: Final = "confluent_kafka.schema_registry."
"""Package of the modules of ``confluent/...``."""


def _compiled(text: str, before: Iterable[SchemaDocument]) -> FileDescriptorProto:
    known = [FileDescriptorProto.FromString(part.content) for part in before]
    imports = re.findall(r'import\s+(?:public\s+|weak\s+)?["\']([^"\']+)["\']', text)
    built_in = _built_in([*imports, *(name for each in known for name in each.dependency)])
    with TemporaryDirectory(prefix="anabranch-protobuf-") as folder:
        source, imported, made = (Path(folder, name) for name in ("source", "imported", "made"))
        source.mkdir()
        (source / _SOURCE).write_text(text, encoding="utf-8")
        imported.write_bytes(FileDescriptorSet(file=[*built_in, *known]).SerializeToString())
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"--proto_path={source}",
            f"--descriptor_set_in={imported}",
            f"--descriptor_set_out={made}",
            _SOURCE,
        ]
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMPILE_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"the Protobuf compiler did not end within {_COMPILE_S} s") from error
        if ended.returncode or not made.exists():
            # Further lines are of the compiler's own log.
            lines = [line.partition(f"{_SOURCE}:") for line in ended.stderr.splitlines()]
            said = [f"line {text}" for _, mark, text in lines if mark and "warning:" not in text]
            why = "; ".join(said) or f"the compiler ended with {ended.returncode}"
            raise ConfigurationError(f"it is no Protobuf schema: {why[:_ERROR_CHARACTERS_MAX]}")
        return FileDescriptorSet.FromString(made.read_bytes()).file[-1]
