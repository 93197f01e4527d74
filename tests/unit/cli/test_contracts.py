"""Two participants come to terms by commands, and look at what has become of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.adapters.key_files import VARIABLE, read_key
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.cli import app
from anabranch.codec import federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.contract_file import EXAMPLE
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.federation.ledger import Metered
from anabranch.protocol.federation.movements import Ended, Why
from anabranch.protocol.federation.statements import Statement
from harness.markets import answer, started
from harness.sources import REPORT

FILE = """
pipeline: {who}
sources:
  reports: {{topics: [{who}.reports], record: report.avsc, event_time: {{field: time, unit: ms}}}}
stages:
  totals: {{participant: {who}, reads: [reports], transform: "functions:same"}}
outputs:
  out: {{stage: totals, corrected: {{topic: {who}.out}}}}
"""
FEDERATION = "federation: {{name: tolls, participant: {who}, auditor: audit}}\n"


class Office:
    """North and south, each with its own file and key, at one broker."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, LocalEventLog()
        (folder / "functions.py").write_text("def same(reports):\n    return reports\n")
        (folder / "report.avsc").write_text(json.dumps(REPORT.avro))
        for who in ("north", "south", "east"):
            self.file(who).write_text((FILE + FEDERATION).format(who=who))
        terms = EXAMPLE.replace("2026-12-01", "2026-01-01").replace("2027-03-01", "2999-01-01")
        self.terms = folder / "terms.yaml"
        self.terms.write_text(terms.replace("north.tolls", "north.a"))

    def file(self, who: str) -> Path:
        return self.folder / f"{who}.yaml"

    def key(self, who: str) -> Path:
        return self.folder / f"{who}.key"

    def do(self, who: str, *words: str, signs: bool = False) -> str:
        """What the command says.

        Raises:
            AnabranchError: that it ended with.
        """
        group = (
            2 if words[0] in {"contracts", "keys"} and len(words) > 1 and words[1][0] != "-" else 1
        )
        options = ["-f", str(self.file(who)), "--kafka", "none:1"]
        if words[:2] in {("contracts", "terms"), ("keys", "new")}:
            options = options[:2] if words[0] == "keys" else []
        key = ["--key", str(self.key(who))] if signs else []
        result = CliRunner().invoke(app, [*words[:group], *options, *key, *words[group:]])
        if isinstance(result.exception, AnabranchError):
            raise result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == 0, result.output
        return result.output

    def json(self, who: str, *words: str) -> Any:
        return json.loads(self.do(who, *words, "--json"))

    def with_keys(self, *names: str) -> None:
        for who in names:
            self.do(who, "keys", "new", str(self.key(who)), "--id", "1")
            self.do(who, "keys", "publish", signs=True)

    def say(self, who: str, statement: Statement) -> None:
        writer = self.log.writer()
        value = federation_records.encode(statement, read_key(self.key(who)).sign(statement))
        writer.send(TopicPartition("tolls.contract.north-south", 0), value)
        writer.flush()

    def agreed(self) -> None:
        self.with_keys("north", "south")
        self.do("north", "contracts", "propose", str(self.terms), signs=True)
        self.do("south", "contracts", "sign", "north-south", signs=True)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    made = Office(tmp_path)
    monkeypatch.delenv(f"{VARIABLE}_FILE", raising=False)
    monkeypatch.setattr("anabranch.adapters.kafka.log.KafkaEventLog", lambda _: made.log)
    return made


def test_keys_are_made_published_and_revoked(office: Office) -> None:
    assert "no participant has published a key" in office.do("north", "keys")
    output = office.do("north", "keys", "new", str(office.key("north")), "--id", "1")
    assert f"anabranch keys publish --key {office.key('north')}" in output
    assert office.key("north").stat().st_mode & 0o777 == 0o600
    assert office.do("north", "keys", "publish", signs=True) == "key 1 of north is published\n"
    assert office.json("south", "keys") == {"north": ["1"]}
    assert "north" in office.do("south", "keys")
    with pytest.raises(ConfigurationError, match="key 1 of north: published already"):
        office.do("north", "keys", "publish", signs=True)
    office.key("north").rename(office.key("south"))
    with pytest.raises(ConfigurationError, match=r"is a key of north, .* this is south"):
        office.do("south", "keys", "publish", signs=True)
    office.key("south").rename(office.key("north"))
    office.do("north", "keys", "revoke", signs=True)
    assert office.json("south", "keys") == {"north": []}
    with pytest.raises(ConfigurationError, match="revoked already"):
        office.do("north", "keys", "publish", signs=True)


def test_two_sign_and_the_contract_is_active(office: Office) -> None:
    assert "sees no contracts in tolls" in office.do("south", "contracts")
    office.with_keys("north", "south")
    output = office.do("north", "contracts", "propose", str(office.terms), signs=True)
    assert output == (
        "north-south: version 1 is proposed; south agrees with"
        " `anabranch contracts sign north-south`\n"
    )
    (row,) = office.json("south", "contracts")
    assert (row["state"], row["waits_for_signature_of"]) == ("proposed", ["south"])
    assert row["proposed_terms"]["tasks"] == ["north.a", "north.volumes"]
    assert "south to sign version 1" in office.do("south", "contracts")
    output = office.do("south", "contracts", "sign", "north-south", signs=True)
    assert output == "north-south: version 1 is signed by both\n"
    (row,) = office.json("north", "contracts")
    assert (row["state"], row["may_move"], row["proposed_terms"]) == ("active", True, None)
    assert (row["price_lowest_micro"], row["price_highest_micro"]) == (800, 1_000)
    assert row["terms"]["audit"]["meter_ms"] == 1_000
    settings = office.log.admin().settings("tolls.contract.north-south")
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["retention.ms"] == "-1"


def test_what_a_party_says_later(office: Office) -> None:
    office.agreed()
    for who, word, state in (
        ("north", "suspend", "suspended"),
        ("south", "suspend", "suspended"),
        ("north", "resume", "suspended"),
        ("south", "resume", "active"),
        ("south", "notice", "ending"),
    ):
        assert (
            office.do(who, "contracts", word, "north-south", signs=True)
            == f"north-south: {state}\n"
        )
    assert office.json("north", "contracts")[0]["ends"] is not None
    with pytest.raises(ConfigurationError, match="not in a state for that"):
        office.do("north", "contracts", "suspend", "north-south", signs=True)


def test_a_proposal_is_withdrawn_and_another_one_made(office: Office) -> None:
    office.with_keys("north", "south")
    office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.do("north", "contracts", "withdraw", "north-south", signs=True)
    assert office.json("north", "contracts") == []
    with pytest.raises(ConfigurationError, match="nothing is proposed that could be signed"):
        office.do("south", "contracts", "sign", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="nothing is proposed"):
        office.do("north", "contracts", "withdraw", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="it stands there already"):
        office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.terms.write_text(office.terms.read_text().replace("fixed: 1000", "fixed: 1100"))
    office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.do("south", "contracts", "sign", "north-south", signs=True)


def test_what_would_not_count_is_not_written(office: Office) -> None:
    office.do("north", "keys", "new", str(office.key("north")), "--id", "1")
    propose = ("contracts", "propose", str(office.terms))
    with pytest.raises(ConfigurationError, match="no signing key is named: give --key FILE"):
        office.do("north", *propose)
    with pytest.raises(ConfigurationError, match="key 1 of north is not published"):
        office.do("north", *propose, signs=True)
    assert office.log.admin().named("tolls.") == []
    office.do("north", "keys", "publish", signs=True)
    office.with_keys("south", "east")
    with pytest.raises(
        ConfigurationError, match="is between north and south; the key is one of east"
    ):
        office.do("east", *propose, signs=True)
    with pytest.raises(ConfigurationError, match="sees no contract other; it sees: none"):
        office.do("north", "contracts", "sign", "other", signs=True)
    office.do("north", *propose, signs=True)
    with pytest.raises(ConfigurationError, match="has signed version 1 already; now south must"):
        office.do("north", "contracts", "sign", "north-south", signs=True)
    office.do("south", "contracts", "sign", "north-south", signs=True)
    office.terms.write_text("version: 3\n" + office.terms.read_text())
    with pytest.raises(ConfigurationError, match="a contract begins with version 1"):
        office.do("north", *propose, signs=True)


def test_a_topic_whose_times_its_maker_could_choose_is_not_signed_in(office: Office) -> None:
    """Made by a buyer who would date records back."""
    office.with_keys("north", "south")
    bad = topic_settings(
        "contract", "tolls.contract.north-south", config={"message.timestamp.type": "CreateTime"}
    )
    office.log.admin().create([bad])
    with pytest.raises(ConfigurationError, match=r"kafka-configs\.sh"):
        office.do("south", "contracts", "propose", str(office.terms), signs=True)
    assert "is left out" in office.do("south", "ledger")


def test_the_market_and_the_ledger_show_what_moved_and_who_owes_what(office: Office) -> None:
    office.agreed()
    assert "no load has moved" in office.do("north", "market")
    begin = replace(started(answer()), signature=read_key(office.key("south")).sign(answer()))
    office.say("north", begin)
    (row,) = office.json("south", "market")
    assert (row["task"], row["of"], row["run_by"]) == ("north.a", "north", "south")
    assert (row["units"], row["price_micro"], row["to"]) == (10, 900, None)
    assert "north.a" in office.do("north", "market")
    office.say("north", Metered("north-south", row["movement"], "south", 1, 10))
    office.say("north", Ended("north-south", row["movement"], "north", 0, Why.RECALLED))
    assert office.json("south", "market") == []
    (row,) = office.json("south", "market", "--all")
    assert (row["run_by"], row["ended_by"], row["why"]) == ("north", "north", "recalled")
    found = office.json("north", "ledger")
    penalty = 5_000_000 * 1_000
    assert found["balances_nano"] == {"north": -penalty, "south": penalty}
    assert found["sum_nano"] == 0
    assert found["ignored"] == {"not signed by whom it must be": 1}
    output = office.do("north", "ledger")
    assert "ended before its time" in output
    assert "1 records changed nothing" in output


def test_without_a_federation_the_commands_say_what_to_write(office: Office) -> None:
    office.file("north").write_text(FILE.format(who="north"))
    for words in (("contracts",), ("market",), ("ledger",), ("keys",)):
        with pytest.raises(ConfigurationError, match=r"federation: \{name: tolls"):
            office.do("north", *words)
    with pytest.raises(ConfigurationError, match="names no federation"):
        office.do("north", "keys", "new", str(office.key("north")))


def test_terms_to_begin_with_are_printed(office: Office) -> None:
    assert office.do("north", "contracts", "terms") == EXAMPLE


def test_the_rights_on_a_contract_are_listed_by_its_name(office: Office) -> None:
    given = ["acls", "-f", str(office.file("north")), "--json", "--contract", "north-south"]
    listed = json.loads(CliRunner().invoke(app, given).output)
    assert {
        right["principal"]
        for right in listed
        if (right["name"], right["operation"]) == ("tolls.contract.north-south", "Write")
    } == {"north.contract_broker", "north.operator"}
    assert len({tuple(right.items()) for right in listed}) == len(listed)
    office.file("north").write_text(FILE.format(who="north"))
    rejected = CliRunner().invoke(app, given)
    assert isinstance(rejected.exception, ConfigurationError)


def test_the_owner_of_a_published_stage_names_who_else_signs_it(office: Office) -> None:
    office.with_keys("south")
    text = (FILE + FEDERATION).format(who="north") + "publish: {totals: {keep: 1h}}\n"
    partners = text.replace("auditor: audit", "auditor: audit, partners: {south: [totals]}")
    office.file("north").write_text(partners)
    office.do("north", "keys", "new", str(office.key("north")), "--id", "1")
    with pytest.raises(ConfigurationError, match="is not published"):
        office.do("north", "keys", "signers", signs=True)
    office.do("north", "keys", "publish", signs=True)
    output = office.do("north", "keys", "signers", signs=True)
    assert output == "south may sign north.totals\n"
    assert office.do("north", "keys", "signers", signs=True) == "there is nothing new to say\n"
    assert office.json("south", "keys") == {"north": ["1"], "south": ["1"]}
    office.file("north").write_text(text)
    output = office.do("north", "keys", "signers", signs=True)
    assert output == "south may no longer sign north.totals\n"
