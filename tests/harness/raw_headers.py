"""Records whose header names are any bytes, as producers in other languages write them; the
Python client rejects such names.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

from anabranch.ports import TopicPartition

_FLUSH_MS = 20_000
# Tags of the arguments of rd_kafka_producev: rd_kafka_vtype_t.
_TOPIC = 1
_PARTITION = 3
_VALUE = 4
_HEADERS = 10
_FLAGS = 7
_END = 0
_COPY = 2


def produce(
    address: str, at: TopicPartition, value: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """Write one record, by librdkafka itself, as it came with the Python client."""
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, name).restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    assert (
        library.rd_kafka_conf_set(
            conf, b"bootstrap.servers", address.encode(), text, ctypes.c_size_t(512)
        )
        == 0
    ), text.value
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, text, ctypes.c_size_t(512)))
    assert client.value is not None, text.value
    made = ctypes.c_void_p(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name_bytes, content in headers:
        assert (
            library.rd_kafka_header_add(
                made,
                name_bytes,
                ctypes.c_ssize_t(len(name_bytes)),
                content,
                ctypes.c_ssize_t(len(content)),
            )
            == 0
        )
    error = library.rd_kafka_producev(
        client,
        _TOPIC,
        at.topic.encode(),
        _PARTITION,
        ctypes.c_int32(at.partition),
        _VALUE,
        value,
        ctypes.c_size_t(len(value)),
        _FLAGS,
        _COPY,
        _HEADERS,
        made,
        _END,
    )
    assert error == 0
    assert library.rd_kafka_flush(client, _FLUSH_MS) == 0
    library.rd_kafka_destroy(client)
