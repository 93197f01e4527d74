"""The tree of errors that anabranch raises.

::

    AnabranchError
    |-- ConfigurationError       a pipeline file, a setting or a topic is wrong (exit code 2)
    |   `-- UnknownSchema        a schema registry does not have an id
    |-- ProtocolError            a rule was broken
    |   |-- LocalProtocolError   by this process: a bug here; the process ends
    |   `-- RemoteProtocolError  by what another process wrote: rejected, counted, never a crash
    |-- Fenced                   a newer process of the same replica or output exists: this one ends
    |   `-- Outvoted             the manager calls its results wrong: it starts from another's state
    |-- RecordRejected           one user's record cannot be used: goes to the dead-letter topic
    |-- InputAwaited             input of a source cannot be asked for: it waits, and asks again
    |   `-- InputMissing         it is gone, by the broker's answer: a person may have to act
    |-- DataMissing              named blocks are gone or do not match their part: never "less data"
    |   `-- RecordDamaged        a record does not match its checksum; later ones can be read
    |-- TooManyParts             a record names more open parts than readers hold: its writer ends
    |-- StageFunctionError       the user's function raised, or returned what it must not
    |-- EngineEnded              a node's engine has ended, and all queries with it: the node ends
    `-- AdapterError             a broker, Redis or a disk did not do what it should
        |-- OutcomeUnknown       it may or may not have happened; the caller reads back first
        `-- Unavailable          it did not happen; the caller may ask again
            `-- RecordTooLarge   nor would it: larger than its topic, or the client, takes

Library exceptions never cross a port: the adapters turn them into these.
"""

from __future__ import annotations

from enum import StrEnum


def headline(text: str) -> str:
    """Return the first line of an error's text that says something, for where one line is shown.

    A line that ends with a colon says nothing without the next one, and is joined with it: Spark's
    errors begin with a line break, which leaves only ``sql: raised ParseException:`` before it.
    """
    joined = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        joined = f"{joined} {line}" if joined else line
        if not line.endswith(":"):
            break
    return joined


class AnabranchError(Exception):
    """Root of all errors raised on purpose."""


class ConfigurationError(AnabranchError):
    """Something a person wrote is not as it must be. The text names file, line and key where
    it can.
    """


class UnknownSchema(ConfigurationError):
    """A schema registry does not have an id: not yet, or never."""


class ProtocolError(AnabranchError):
    """A rule of the protocol was broken. Raised only as one of its two subclasses."""


class LocalProtocolError(ProtocolError):
    """This process broke a rule: a bug. It must end."""


class RemoteProtocolError(ProtocolError):
    """Raised when what was read breaks a rule. The reader rejects and counts it, and continues."""


class Fenced(AnabranchError):
    """A newer process replaced this one (rule 2, rule 12, rule 21). This process ends; nothing it
    writes counts any more.
    """


class Outvoted(Fenced):
    """The other replicas of its stage agree on other results. It ends, and starts anew from a
    peer's state or from its input.
    """


class RejectionReason(StrEnum):
    """Reason for which a user's record went to the dead-letter topic; the value stands in the
    record's header.
    """

    EMPTY_VALUE = "empty_value"
    NULL_VALUE = "null_value"
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    NOT_JSON = "not_json"
    NOT_AVRO = "not_avro"
    NOT_PROTOBUF = "not_protobuf"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    EXTRA_FIELD = "extra_field"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    NO_EVENT_TIME = "no_event_time"
    LATE = "late"
    BEYOND_MAX_AHEAD = "beyond_max_ahead"


class RecordRejected(AnabranchError):
    """Raised when a record of a user's topic cannot be used. ``reason`` is the code, ``str(error)``
    the explanation.
    """

    def __init__(self, reason: RejectionReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class InputAwaited(AnabranchError):
    """Input of a source cannot be read at the moment, so it is not known whether all of it is
    there. Its ingestion writes nothing, and asks again.
    """


class InputMissing(InputAwaited):
    """Input of a source is gone, by the broker's answer. Its ingestion waits until the input is
    there again, or an operator has given up what is missing.
    """


class DataMissing(AnabranchError):
    """Blocks that a part names are gone, or do not match its count, rows or digest (rule 7,
    rule 18).
    """


class RecordDamaged(DataMissing):
    """The bytes of a record in a log do not match its checksum. It is read as damaged for ever, so
    a reader that can do without it continues after it.
    """

    def __init__(self, text: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TooManyParts(AnabranchError):
    """A writer would have more open parts than its readers hold, or a batch more than its
    records name. It was rejected, and would be again.
    """


class StageFunctionError(AnabranchError):
    """The user's function raised, returned a wrong shape, or emitted a row that is too old.
    Names function, bucket and cause.
    """


class EngineEnded(AnabranchError):
    """The engine of a node has ended, and all queries with it. ``during``: the replicas of
    which a batch ran, sorted.
    """

    def __init__(self, text: str, during: tuple[str, ...]) -> None:
        super().__init__(text)
        self.during = during


class AdapterError(AnabranchError):
    """An outside system did not do what it should."""


class OutcomeUnknown(AdapterError):
    """The request may or may not have been applied: read back before continuing."""


class Unavailable(AdapterError):
    """The request was not applied: it may be made again."""


class RecordTooLarge(Unavailable):
    """At least one record is not in the log, since the broker rejects its size; nothing else was
    wrong.
    """
