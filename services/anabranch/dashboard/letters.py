"""The newest dead letters of each source, for the page.

Looks at the ends of the dead-letter topics and reads the last records only, however many came in
between. What they hold is kept here, cut, and given out for one record that somebody asks for.
"""

from __future__ import annotations

import base64
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from anabranch.dashboard.page import TEXT_MAX
from anabranch.ports import TopicPartition

if TYPE_CHECKING:
    from anabranch.dashboard.feed import Feed
    from anabranch.dashboard.topics import Connect
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Chunk, LogReader

SAMPLES_MAX: Final = 10
"""Of one source."""
CONTENT_BYTES_MAX: Final = 2_048
_EVERY_S: Final = 2.0
_WAIT_MS: Final = 500
_TRIES: Final = 6


class Letters:
    """Of one pipeline. ``work`` runs in the thread that calls it; ``content`` may be called by
    any.
    """

    def __init__(self, pipeline: Pipeline, connect: Connect, feed: Feed) -> None:
        """Nothing is contacted yet."""
        self._connect = connect
        self._topics = {source.name: source.dead_letter for source in pipeline.sources.values()}
        self._feed = feed
        self._seen: dict[TopicPartition, int] = {}
        self._contents: dict[str, dict[str, bytes | None]] = {}
        """By source, then by place."""

    def content(self, source: str, place: str) -> dict[str, str] | None:
        """What the dead letter holds, as text, or else as base64; None: it is none of the newest
        ones, or was empty.
        """
        value = self._contents.get(source, {}).get(place)
        if value is None:
            return None
        cut = value[:CONTENT_BYTES_MAX]
        try:
            return {"text": cut.decode("utf-8"), "size": str(len(value))}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(cut).decode("ascii"), "size": str(len(value))}

    def work(self) -> None:
        """Look at one broker every few seconds, until another is named or the end.

        Raises:
            AnabranchError: it does not answer.
        """
        address, log = self._connect()
        self._seen.clear()
        with (
            closing(log.admin()) as admin,
            closing(log.reader(committed=False, ranges=True)) as reader,
        ):
            while not self._feed.stopping.is_set() and self._connect()[0] == address:
                self.look(reader, admin.partitions(list(self._topics.values())))
                self._feed.stopping.wait(_EVERY_S)

    def look(self, reader: LogReader, partitions: dict[str, int]) -> None:
        """Read what is new. ``partitions``: of the topics that there are.

        Raises:
            AdapterError: the broker does not answer.
        """
        for source, topic in self._topics.items():
            places = [TopicPartition(topic, number) for number in range(partitions.get(topic, 0))]
            ends = reader.ends(places, _WAIT_MS)
            if any(self._seen.get(at) != end for at, end in ends.items()):
                self._read(source, reader, ends)
                self._seen |= ends

    def _read(self, source: str, reader: LogReader, ends: dict[TopicPartition, int]) -> None:
        first = {
            at: max(reader.offsets(at)[0], end - SAMPLES_MAX) for at, end in ends.items() if end
        }
        wanted = {at: offset for at, offset in first.items() if offset < ends[at]}
        if not wanted:
            return
        reader.assign(wanted)
        samples: list[dict[str, Any]] = []
        contents: dict[str, bytes | None] = {}
        for _ in range(_TRIES):
            for chunk in reader.fetch(SAMPLES_MAX * len(wanted), _WAIT_MS):
                for sample, value in _samples(chunk):
                    samples.append(sample)
                    contents[sample["place"]] = value
            if all(reader.position(at) >= ends[at] for at in wanted):
                break
        samples = sorted(samples, key=lambda each: each["at_ms"])[-SAMPLES_MAX:][::-1]
        self._contents[source] = {each["place"]: contents[each["place"]] for each in samples}
        with self._feed.page() as page:
            page.show_rejected(source, samples)


def _samples(chunk: Chunk) -> list[tuple[dict[str, Any], bytes | None]]:
    found = []
    for index, offset in enumerate(chunk.offsets):
        headers = dict(chunk.headers[index])
        value = chunk.values[index]
        found.append(
            (
                {
                    "place": f"{chunk.at.partition}/{offset}",
                    "at_ms": chunk.timestamps_ms[index],
                    "reason": _text(headers.get("anabranch-reason")),
                    "error": _text(headers.get("anabranch-error")),
                    "from": f"{_text(headers.get('anabranch-topic'))}"
                    f"[{_text(headers.get('anabranch-partition'))}]"
                    f" offset {_text(headers.get('anabranch-offset'))}",
                    "bytes": None if value is None else len(value),
                },
                # The record may be megabytes; what is shown is its beginning.
                None if value is None else bytes(value[: CONTENT_BYTES_MAX + 1]),
            )
        )
    return found


def _text(content: bytes | None) -> str:
    return "" if content is None else content[:TEXT_MAX].decode("utf-8", "replace")
