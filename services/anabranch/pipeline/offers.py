"""Offers as files state them: in the owner's pipeline file, with code, and in the file of terms
that the owner gives to another participant, without code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from anabranch.codec import record_schema
from anabranch.codec.field_types import Field
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline import transforms
from anabranch.pipeline.document import MISSING, Document, Place, shown
from anabranch.pipeline.model import Federation, OfferedStage
from anabranch.pipeline.named_records import read_record
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.offered_stages import OR_NULL, Parameter, ParameterKind, Terms

OFFERED_PARAMETERS_MAX: Final = 64
"""Maximum number of parameters of an offered stage: each is an argument of a function."""

OFFERED_ROWS_PER_S_MAX: Final = 10_000_000
"""Highest input limit of an offer, in rows per second. No node processes more, so a higher number
is a typing mistake.
"""

_TERMS: Final = ("version", "reads", "gives", "parameters", "rows_per_s")
_OFFER_KEYS: Final = (*_TERMS, "transform", "sql", "to")
_PARAMETER_KEYS: Final = ("type", "default", "min", "max")
_FILE_KEYS: Final = ("federation", "owner", "definer", "offers")

_ReadRecord = Callable[[object, Place], RecordSchema | None]


def own_offers(file: Document, value: object, participant: str) -> dict[str, OfferedStage]:
    """Return the section ``federation.offers`` of the pipeline file of ``participant``."""

    def record(value: object, at: Place) -> RecordSchema | None:
        return read_record(file, value, at)

    return _offers(file, value, ("federation", "offers"), record, owner=participant)


def known_offers(path: Path, federation: str, owner: str, definer: str) -> dict[str, OfferedStage]:
    """Return the offers of ``owner`` in the file of terms that it gave to ``definer``.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    file = Document(path, read_yaml(path, "file of offers"))
    top = file.mapping(file.root, (), _FILE_KEYS)
    for key, wanted in (("federation", federation), ("owner", owner), ("definer", definer)):
        if top.get(key) != wanted:
            file.mistake((key,), f"these are terms for {shown(top.get(key))}, not {wanted!r}")

    def record(value: object, at: Place) -> None:
        file.mistake(at, f"a record's schema is wanted, not {shown(value)}")

    found = _offers(file, top.get("offers", {}), ("offers",), record, owner=None)
    if file.mistakes:
        raise ConfigurationError("\n".join(file.sorted_mistakes()))
    return found


def terms_for(federation: Federation, definer: str) -> str:
    """Return the content of the file of terms for ``definer``: the offers that it may instantiate.

    Raises:
        ConfigurationError: there is no such offer.
    """
    offers = {
        name: written_terms(offer)
        for name, offer in federation.offers.items()
        if offer.offered_to is None or definer in offer.offered_to
    }
    if not offers:
        raise ConfigurationError(
            f"{federation.participant} offers nothing to {definer}: add it to `to` of an offer"
        )
    terms = {
        "federation": federation.name,
        "owner": federation.participant,
        "definer": definer,
        "offers": offers,
    }
    return json.dumps(terms, indent=2) + "\n"


def written_terms(offer: OfferedStage) -> dict[str, object]:
    """Return the terms of an offer in the form of a file of terms."""
    terms = offer.terms
    return {
        "version": terms.version,
        "reads": {name: record.avro for name, record in offer.reads.items()},
        "gives": offer.gives.avro,
        "parameters": {
            name: {
                key: value
                for key, value in (
                    ("type", parameter.kind.value),
                    ("default", parameter.default),
                    ("min", parameter.low),
                    ("max", parameter.high),
                )
                if value is not None
            }
            for name, parameter in terms.parameters.items()
        },
        "rows_per_s": terms.rows_per_s,
    }


def _offers(
    file: Document, value: object, at: Place, record: _ReadRecord, *, owner: str | None
) -> dict[str, OfferedStage]:
    """Return the offers of a section. ``owner``: owner of the pipeline file that states them with
    code; None: a file of terms, without code.
    """
    found = {}
    for name, entry in file.mapping(value, at, None).items():
        file.name(name, (*at, name), "offer")
        offer = _offer(file, name, entry, (*at, name), record, owner)
        if offer is not None:
            found[name] = offer
    return found


def _offer(
    file: Document, name: str, value: object, at: Place, record: _ReadRecord, owner: str | None
) -> OfferedStage | None:
    raw = file.mapping(value, at, _TERMS if owner is None else _OFFER_KEYS)
    if not isinstance(value, dict):
        return None
    reads = _reads(file, raw.get("reads", MISSING), (*at, "reads"), record)
    gives = _columns(file, raw.get("gives", MISSING), (*at, "gives"), "gives", record)
    parameters = _parameters(file, raw.get("parameters", {}), (*at, "parameters"))
    for parameter in parameters.keys() & reads.keys():
        file.mistake((*at, "parameters", parameter), f"{parameter} is an input of it already")
    cap = file.integer(
        raw.get("rows_per_s", MISSING),
        (*at, "rows_per_s"),
        1,
        OFFERED_ROWS_PER_S_MAX,
    )
    version = file.integer(raw.get("version", 1), (*at, "version"), 1, limits.STAGE_VERSION_MAX)
    transform, sql, offered_to = (
        ([], None, None)
        if owner is None
        else _code(file, raw, at, list(reads), list(parameters), owner)
    )
    if gives is None:
        return None
    terms = Terms(
        version=version,
        reads={each: types_of(schema) for each, schema in reads.items()},
        gives=types_of(gives),
        parameters=parameters,
        rows_per_s=cap,
    )
    return OfferedStage(
        name=name,
        terms=terms,
        reads=reads,
        gives=gives,
        offered_to=offered_to,
        transform=transform,
        sql=sql,
        path=file.path,
    )


def _code(
    file: Document,
    raw: Mapping[str, Any],
    at: Place,
    reads: list[str],
    parameters: list[str],
    owner: str,
) -> tuple[list[str], str | None, list[str] | None]:
    """Return (functions, query, participants that it is offered to), which only the owner's file
    has.
    """
    offered_to = None
    if "to" in raw:
        named = file.texts(raw["to"], (*at, "to"), "participant")
        for participant, place in named:
            file.name(participant, place, "participant")
            if participant == owner:
                file.mistake(place, f"{owner} is the owner of the offer; leave it out")
        offered_to = [participant for participant, _ in named]
    if "sql" in raw:
        if "transform" in raw:
            file.mistake(
                (*at, "sql"), "an offer has either transform or sql; leave one of them out"
            )
        return [], file.text(raw["sql"], (*at, "sql")), offered_to
    reference = file.text(raw.get("transform", MISSING), (*at, "transform"))
    if reference is None:
        return [], None, offered_to
    problem = transforms.check(reference, file.path, reads, parameters)
    if problem is not None:
        file.mistake((*at, "transform"), problem)
    return [reference], None, offered_to


def _reads(
    file: Document, value: object, at: Place, record: _ReadRecord
) -> dict[str, RecordSchema]:
    if value is MISSING or value == {}:
        file.mistake(at, "is missing; name each input with its record, reads: {cars: car.avsc}")
        return {}
    raw = file.mapping(value, at, None)
    if len(raw) > limits.INPUTS_MAX:
        file.mistake(at, f"at most {limits.INPUTS_MAX} inputs are possible")
    found = {}
    for name, entry in raw.items():
        file.name(name, (*at, name), "input")
        columns = _columns(file, entry, (*at, name), name, record)
        if columns is not None:
            found[name] = columns
    return found


def _columns(
    file: Document, value: object, at: Place, name: str, record: _ReadRecord
) -> RecordSchema | None:
    """Return the columns of a record that is named, or written out as an Avro schema."""
    if not isinstance(value, dict):
        return record(value, at)
    try:
        return record_schema.parse(json.dumps(value), name)
    except (ConfigurationError, TypeError, ValueError, RecursionError) as error:
        for line in str(error).splitlines():
            file.mistake(at, line)
    return None


def types_of(record: RecordSchema) -> dict[str, str]:
    """Return the columns of a record, with their types as text."""
    return {field.name: _type(field) for field in record.fields}


def _type(field: Field) -> str:
    inner = ", ".join(
        f"{each.name} {_type(each)}" if field.kind == "record" else _type(each)
        for each in field.inner
    )
    return f"{field.shown()}{f'({inner})' if inner else ''}{OR_NULL if field.nullable else ''}"


def _parameters(file: Document, value: object, at: Place) -> dict[str, Parameter]:
    raw = file.mapping(value, at, None)
    if len(raw) > OFFERED_PARAMETERS_MAX:
        file.mistake(at, f"at most {OFFERED_PARAMETERS_MAX} parameters are possible")
    return {name: _parameter(file, name, entry, (*at, name)) for name, entry in raw.items()}


def _parameter(file: Document, name: str, value: object, at: Place) -> Parameter:
    if not name.isidentifier():
        file.mistake(at, "a parameter is an argument of a function; use letters, digits and '_'")
    raw = file.mapping(value, at, _PARAMETER_KEYS)
    kind = ParameterKind(
        file.choice(
            raw.get("type", MISSING), (*at, "type"), tuple(each.value for each in ParameterKind)
        )
    )
    low, high = (
        _bound(file, raw[key], (*at, key), kind) if key in raw else None for key in ("min", "max")
    )
    found = Parameter(kind, None, low, high)
    if low is not None and high is not None and low > high:
        file.mistake((*at, "max"), f"{high} is less than min, {low}")
    if "default" not in raw:
        return found
    default = found.taken(raw["default"])
    if default is None:
        file.mistake((*at, "default"), f"{found.wanted()} is wanted, not {shown(raw['default'])}")
    return Parameter(kind, default, low, high)


def _bound(file: Document, value: object, at: Place, kind: ParameterKind) -> float | None:
    """Return a bound of a number, or of the length of a text; None after a mistake."""
    if kind is ParameterKind.BOOLEAN:
        file.mistake(at, "is for numbers and for the length of texts; leave it out")
        return None
    wanted = Parameter(
        ParameterKind.NUMBER if kind is ParameterKind.NUMBER else ParameterKind.INTEGER
    )
    bound = wanted.taken(value)
    if bound is None:
        file.mistake(at, f"{wanted.wanted()} is wanted, not {shown(value)}")
    return cast("float | None", bound)
