"""Records that a file names: by path of an ``.avsc`` file, or by name in ``schemas/records``."""

from __future__ import annotations

import difflib
import re
from typing import Final

from anabranch.codec import catalog, record_schema
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline.document import Document, Place, guess
from anabranch.protocol.errors import ConfigurationError

_RECORD: Final = re.compile(r"(?P<name>[a-z][a-z0-9_]{0,62})(/v(?P<version>[1-9][0-9]{0,5}))?\Z")


def read_record(file: Document, value: object, at: Place) -> RecordSchema | None:
    """Return the record that ``value`` names: an ``.avsc`` file, NAME or NAME/vN; None after a
    mistake.
    """
    text = file.text(value, at)
    if text is None:
        return None
    folder = file.path.resolve().parent
    try:
        if text.endswith(".avsc"):
            if not (folder / text).exists():
                beside = sorted(path.name for path in folder.glob("*.avsc"))
                file.mistake(at, f"there is no file {folder / text}; {guess(text, beside)}")
                return None
            return record_schema.load_file(folder / text)
        match = _RECORD.match(text)
        if match is None:
            file.mistake(
                at,
                f"{text!r} is neither a record (NAME, or NAME/v2) nor the path of an .avsc file;"
                " write one of them",
            )
            return None
        places = [parent / "schemas" / "records" for parent in (folder, *folder.parents[:3])] + [
            catalog.records_folder()
        ]
        for place in places:
            if (place / match["name"]).is_dir():
                version = int(match["version"]) if match["version"] else None
                return record_schema.load_folder(place / match["name"], version)
        known = sorted(
            {
                entry.name
                for place in places
                if place.is_dir()
                for entry in place.iterdir()
                if entry.is_dir()
            }
        )
        close = difflib.get_close_matches(match["name"], known, 1)
        hint = (
            f"did you mean {close[0]!r}?"
            if close
            else "put it into schemas/records/NAME/v1.avsc next to the pipeline file"
        )
        file.mistake(at, f"there is no record {match['name']}; {hint}")
    except ConfigurationError as error:
        for line in str(error).splitlines():
            file.mistake(at, line)
    return None
