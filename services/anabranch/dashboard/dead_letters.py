"""Follower of the newest dead letters of each source, for the page.

It polls the ends of the dead-letter topics, and reads only the last few records of each, however
many came in between. The beginnings of their values are kept here. The page's messages do not hold
them: a browser requests the content of one dead letter at a time.
"""

from __future__ import annotations

import base64
import codecs
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.dashboard.page import TEXT_MAX
from anabranch.ports import TopicPartition

if TYPE_CHECKING:
    from anabranch.dashboard.feed import PageFeed
    from anabranch.dashboard.topics import Connect
    from anabranch.pipeline.model import Pipeline
    from anabranch.ports import Chunk, LogReader

SAMPLES_MAX: Final = 10
"""Maximum number of dead letters of one source on the page."""
CONTENT_BYTES_MAX: Final = 2_048
"""Number of bytes of a dead letter's value that the page can show."""
_EVERY_S: Final = 2.0
_WAIT_MS: Final = 500
_TRIES: Final = 6


@dataclass(frozen=True, slots=True)
class Content:
    """Value of one dead letter, as far as the page shows it."""

    beginning: bytes
    size_bytes: int
    """Size of the whole value."""


class DeadLetterFollower:
    """Follower of the dead letters of one pipeline.

    ``work`` runs in the thread that calls it; any thread may call ``content``.
    """

    def __init__(self, pipeline: Pipeline, connect: Connect, feed: PageFeed) -> None:
        """Prepare the follower without contacting the broker."""
        self._connect = connect
        self._topics = {source.name: source.dead_letter for source in pipeline.sources.values()}
        self._feed = feed
        self._seen: dict[TopicPartition, int] = {}
        """End of each partition when it was last read."""
        self._contents: dict[str, dict[str, Content | None]] = {}
        """Values, by source and place."""

    def content(self, source: str, place: str) -> dict[str, str] | None:
        """Return the beginning of a dead letter's value, as text or base64, and the size of the
        whole value, in bytes.

        None: the dead letter is not among the newest ones, or has no value. ``place`` is
        ``PARTITION/OFFSET``.
        """
        found = self._contents.get(source, {}).get(place)
        if found is None:
            return None
        size = {"size": str(found.size_bytes)}
        try:
            # A character that is cut at the end does not make it binary.
            is_whole = found.size_bytes == len(found.beginning)
            return {"text": codecs.utf_8_decode(found.beginning, "strict", is_whole)[0]} | size
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(found.beginning).decode("ascii")} | size

    def work(self) -> None:
        """Poll one broker every few seconds, until its address changes or the page ends.

        Raises:
            AnabranchError: the broker does not answer.
        """
        address, log = self._connect()
        self._seen.clear()
        with (
            closing(log.admin()) as admin,
            closing(log.reader(committed=False, ranges_of="dead-letters")) as reader,
        ):
            while not self._feed.stopping.is_set() and self._connect()[0] == address:
                self.poll(reader, admin.partitions(list(self._topics.values())))
                self._feed.stopping.wait(_EVERY_S)

    def poll(self, reader: LogReader, partitions: dict[str, int]) -> None:
        """Read the last dead letters of each topic that has new ones, and show them.

        ``partitions`` holds the number of partitions of each topic that exists.

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
        """Read the last dead letters of ``source`` up to ``ends``, and show the newest of them."""
        first = {
            at: max(reader.offsets(at)[0], end - SAMPLES_MAX) for at, end in ends.items() if end
        }
        wanted = {at: offset for at, offset in first.items() if offset < ends[at]}
        if not wanted:
            return
        reader.assign(wanted)
        samples: list[dict[str, Any]] = []
        contents: dict[str, Content | None] = {}
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


def _samples(chunk: Chunk) -> list[tuple[dict[str, Any], Content | None]]:
    """Return, for each dead letter of ``chunk``, its row on the page and its value."""
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
                # A record may have megabytes.
                None if value is None else Content(bytes(value[:CONTENT_BYTES_MAX]), len(value)),
            )
        )
    return found


def _text(content: bytes | None) -> str:
    """Return a header's value as text of bounded length."""
    return "" if content is None else content[:TEXT_MAX].decode("utf-8", "replace")
