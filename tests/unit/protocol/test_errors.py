"""The tree of errors: who catches what is decided by it."""

from __future__ import annotations

import re

import pytest

from anabranch.protocol import errors


def test_every_error_is_in_the_tree() -> None:
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]
    drawn = re.findall(r"^    (?:[| ]*[|`]-- )?(\w+)", errors.__doc__ or "", re.MULTILINE)
    assert sorted(drawn) == sorted(each.__name__ for each in found)
    assert all(issubclass(each, errors.AnabranchError) and each.__doc__ for each in found)


@pytest.mark.parametrize(
    ("error", "others"),
    [
        (errors.RemoteProtocolError, (errors.LocalProtocolError, errors.AdapterError)),
        (errors.OutcomeUnknown, (errors.Unavailable, errors.ProtocolError)),
        (errors.Fenced, (errors.ProtocolError, errors.AdapterError)),
        (errors.DataMissing, (errors.AdapterError, errors.RemoteProtocolError)),
    ],
)
def test_what_is_treated_in_another_way_is_not_caught_with_it(
    error: type[Exception], others: tuple[type[Exception], ...]
) -> None:
    assert not issubclass(error, others)
    assert not any(issubclass(other, error) for other in others)


def test_a_damaged_record_says_where_it_is() -> None:
    error = errors.RecordDamaged("its checksum differs", "topic", 1, 7)
    assert (error.topic, error.partition, error.offset) == ("topic", 1, 7)
    assert str(error) == "its checksum differs"


def test_who_ran_when_the_engine_ended_is_reported() -> None:
    ended = errors.EngineEnded("killed", ("sums.0",))
    assert (str(ended), ended.during) == ("killed", ("sums.0",))


def test_a_rejection_has_a_code_and_an_explanation() -> None:
    error = errors.RecordRejected(errors.RejectionReason.LATE, "3 s late")
    assert (error.reason, str(error), f"{error.reason}") == ("late", "3 s late", "late")


def test_the_codes_of_rejections_are_the_names_in_lower_case() -> None:
    """They stand in headers that users' programs read."""
    assert all(reason.value == reason.name.lower() for reason in errors.RejectionReason)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("no module f", "no module f"),
        (
            "\n[PARSE_SYNTAX_ERROR] near 'FORM'.\n\n== SQL ==\nSELECT",
            "[PARSE_SYNTAX_ERROR] near 'FORM'.",
        ),
        (
            "sql: raised ParseException: \n[PARSE] near 'FORM'.\n== SQL ==",
            "sql: raised ParseException: [PARSE] near 'FORM'.",
        ),
        ("one:\n\n two: \n", "one: two:"),
    ],
)
def test_one_line_of_an_error_says_something(text: str, shown: str) -> None:
    assert errors.headline(text) == shown
