"""Two participants agree on contracts by commands, and show their state."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anabranch.adapters.key_files import VARIABLE, read_key
from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.cli import app
from anabranch.codec import federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.federation.contract_file import EXAMPLE
from anabranch.federation.stream_file import PLANS_EXAMPLE, STREAM_EXAMPLE
from anabranch.ports import TopicPartition
from anabranch.protocol.errors import AnabranchError, ConfigurationError
from anabranch.protocol.federation.ledger import Ledger, Metered, Settled
from anabranch.protocol.federation.movements import Ended, EndReason
from anabranch.protocol.federation.plan_switching import PlanWord, Word
from anabranch.protocol.federation.statements import Statement
from anabranch.protocol.federation.stream_ledger import StreamMetered
from harness.markets import answer, started
from harness.sources import REPORT

FILE = """
pipeline: {who}
sources:
  reports: {{topics: [{who}.reports], record: report.avsc, event_time: {{field: time, unit: ms}}}}
stages:
  totals:
    participant: {who}
    reads: [reports]
    transform: "functions:same"
    ha: upstream_backup
    state_horizon: 0ms
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
        """Return what the command prints.

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
    assert output == "north-south: version 1 is signed by both sides\n"
    (row,) = office.json("north", "contracts")
    assert (row["state"], row["may_move"], row["proposed_terms"]) == ("active", True, None)
    assert (row["price_lowest_micro"], row["price_highest_micro"]) == (800, 1_000)
    assert row["terms"]["audit"]["meter_ms"] == 1_000
    settings = office.log.admin().settings("tolls.contract.north-south")
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["retention.ms"] == "-1"


def test_a_contract_is_suspended_resumed_and_ended(office: Office) -> None:
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
    with pytest.raises(ConfigurationError, match="state does not allow that"):
        office.do("north", "contracts", "suspend", "north-south", signs=True)


def test_a_proposal_is_withdrawn_and_another_one_made(office: Office) -> None:
    office.with_keys("north", "south")
    office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.do("north", "contracts", "withdraw", "north-south", signs=True)
    assert office.json("north", "contracts") == []
    with pytest.raises(ConfigurationError, match="no text waits for a signature"):
        office.do("south", "contracts", "sign", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="there is no proposal"):
        office.do("north", "contracts", "withdraw", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="it was written before"):
        office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.terms.write_text(office.terms.read_text().replace("fixed: 1000", "fixed: 1100"))
    office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.do("south", "contracts", "sign", "north-south", signs=True)


def test_a_rejected_statement_is_not_written(office: Office) -> None:
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
        ConfigurationError, match="is between north and south, but the key belongs to east"
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


def test_a_version_with_other_slots_than_the_first_one_is_not_proposed(office: Office) -> None:
    office.agreed()
    text = "version: 2\n" + office.terms.read_text()
    office.terms.write_text(text.replace("meter: 1s", "meter: 10s"))
    assert "meter: 10s" in office.terms.read_text()
    with pytest.raises(ConfigurationError, match=r"audit: \{meter: 1000ms, settle: 60000ms\}"):
        office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.terms.write_text(text.replace("fixed: 1000", "fixed: 1100"))
    office.do("north", "contracts", "propose", str(office.terms), signs=True)


def test_a_topic_whose_times_its_maker_could_choose_is_not_signed_in(office: Office) -> None:
    """Made by a buyer who would date records back."""
    office.with_keys("north", "south")
    bad = topic_settings(
        "contract", "tolls.contract.north-south", config={"message.timestamp.type": "CreateTime"}
    )
    office.log.admin().create([bad])
    with pytest.raises(ConfigurationError, match=r"kafka-configs\.sh"):
        office.do("south", "contracts", "propose", str(office.terms), signs=True)
    assert "is ignored" in office.do("south", "ledger")


def test_a_contract_that_has_lost_its_beginning_is_named_and_takes_nothing(office: Office) -> None:
    office.agreed()
    topic = "tolls.contract.north-south"
    office.log.trim(TopicPartition(topic, 0), 1)
    assert f"topic {topic} is ignored: its first 1 records are deleted" in office.do(
        "south", "ledger"
    )
    with pytest.raises(ConfigurationError, match="Restore the topic from a backup"):
        office.do("south", "contracts", "notice", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="Restore the topic from a backup"):
        office.do("south", "contracts", "propose", str(office.terms), signs=True)


def test_keys_whose_times_their_owner_could_choose_are_not_published(office: Office) -> None:
    config = {"message.timestamp.type": "CreateTime"}
    office.log.admin().create([topic_settings("keys", "tolls.keys.north", config=config)])
    office.do("north", "keys", "new", str(office.key("north")), "--id", "1")
    with pytest.raises(ConfigurationError, match=r"tolls\.keys\.north: it lacks .*LogAppendTime"):
        office.do("north", "keys", "publish", signs=True)


def test_the_market_and_the_ledger_show_what_moved_and_who_owes_what(office: Office) -> None:
    office.agreed()
    assert "no load runs at another participant" in office.do("north", "market")
    begin = replace(started(answer()), signature=read_key(office.key("south")).sign(answer()))
    office.say("north", begin)
    (row,) = office.json("south", "market")
    assert (row["task"], row["of"], row["run_by"]) == ("north.a", "north", "south")
    assert (row["units"], row["price_micro"], row["to"]) == (10, 900, None)
    assert "north.a" in office.do("north", "market")
    office.say("north", Metered("north-south", row["movement"], "south", 1, 10))
    office.say("north", Ended("north-south", row["movement"], "north", 0, EndReason.RECALLED))
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


def test_balances_that_do_not_sum_up_are_an_error_that_says_so(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.agreed()
    monkeypatch.setattr(Ledger, "balances", lambda _: {"north": -5_000_000_000, "south": 0})
    with pytest.raises(AnabranchError, match=r"sum up to -5 instead of 0.*report it"):
        office.do("north", "ledger")
    with pytest.raises(AnabranchError, match="pay nothing"):
        office.do("north", "ledger", "--json")


def test_without_a_federation_the_commands_say_what_to_write(office: Office) -> None:
    office.file("north").write_text(FILE.format(who="north"))
    for words in (("contracts",), ("market",), ("ledger",), ("keys",)):
        with pytest.raises(ConfigurationError, match=r"federation: \{name: tolls"):
            office.do("north", *words)
    with pytest.raises(ConfigurationError, match="names no federation"):
        office.do("north", "keys", "new", str(office.key("north")))


def test_terms_to_begin_with_are_printed(office: Office) -> None:
    assert office.do("north", "contracts", "terms") == EXAMPLE
    assert office.do("north", "contracts", "terms", "--stream") == STREAM_EXAMPLE
    assert office.do("north", "contracts", "terms", "--plans") == PLANS_EXAMPLE


def of_a_stream(office: Office) -> None:
    """North and south agree that north's stream is paid for."""
    office.with_keys("north", "south")
    terms = STREAM_EXAMPLE.replace("2026-12-01", "1970-01-01").replace("2027-03-01", "2999-01-01")
    office.terms.write_text(terms.replace("billing", "south"))
    output = office.do("north", "contracts", "propose", str(office.terms), signs=True)
    assert "`anabranch contracts sign north-south`" in output
    office.do("south", "contracts", "sign", "north-south", signs=True)


def metered_later(office: Office) -> int:
    """Append figures dated ten minutes ago by the log's time. Return the first period that
    counts.
    """
    clock = VirtualClock(SystemClock().now_ms() - 610_000)
    office.log.clock = clock
    of_a_stream(office)
    period = clock.now_ms() // 60_000 + 1
    clock.advance(600_000)
    return period


def test_a_contract_for_a_stream_is_signed_shown_and_ended_as_any(office: Office) -> None:
    of_a_stream(office)
    (row,) = office.json("south", "contracts")
    assert (row["for"], row["state"], row["may_move"]) == ("north.speeds", "active", False)
    assert (row["buyer"], row["seller"]) == ("south", "north")
    assert (row["price_lowest_micro"], row["price_highest_micro"]) == (30, 50)
    assert row["terms"]["plans"][0]["tiers"][0] == {"availability_ppm": 999_000, "price_micro": 50}
    assert "north.speeds" in office.do("south", "contracts")
    assert office.log.admin().named("tolls.offers.") == [], "nothing moves"
    with pytest.raises(ConfigurationError, match="sees no contract other; it sees: north-south"):
        office.do("north", "contracts", "sign", "other", signs=True)
    load = office.folder / "load.yaml"
    load.write_text(EXAMPLE)
    with pytest.raises(ConfigurationError, match="of another kind, or with other streams"):
        office.do("north", "contracts", "propose", str(load), signs=True)
    for word, state in (("suspend", "suspended"), ("resume", "active"), ("notice", "ending")):
        output = office.do("south", "contracts", word, "north-south", signs=True)
        assert output == f"north-south: {state}\n"


def test_what_is_due_for_a_stream_stands_in_the_ledger(office: Office) -> None:
    period = metered_later(office)
    office.say("north", StreamMetered("north-south", "north", period, 7, 600))
    for number in range(1, 3):
        for who, messages in (("north", 2), ("south", 1)):
            measured = StreamMetered("north-south", who, period + number, messages, 600)
            office.say(who, measured)
    office.say("south", Settled("north-south", "south", period, 350_000))
    found = office.json("north", "ledger")
    assert found["balances_nano"] == {"north": 350_000, "south": -350_000}
    assert (found["sum_nano"], found["ignored"]) == (0, {})
    (row,) = found["contracts"]
    assert (row["unsettled_nano"], row["disputes"], row["settled_period"]) == (100_000, 2, period)
    output = office.do("south", "ledger")
    assert f"period {period}" in output
    assert "north-south: 2 measurements in dispute" in output
    assert "north-south: 0.0001 is due and not settled yet" in output


def test_a_sender_suggests_another_and_the_receiver_sees_whether_it_costs_less(
    office: Office,
) -> None:
    period = metered_later(office)
    better = office.folder / "better.yaml"
    text = office.terms.read_text().replace("north", "east").replace("price: 50", "price: 40")
    better.write_text(text)
    suggest = ("contracts", "suggest", "north-south", str(better))
    with pytest.raises(ConfigurationError, match="not by the sender, or not to the receiver"):
        office.do("south", *suggest, signs=True)
    output = office.do("north", *suggest, signs=True)
    assert output == "north-south: the suggestion is open for 7d\n"
    (row,) = office.json("south", "contracts")
    (found,) = row["suggestions"]
    assert (found["contract"], found["stream"], found["worth_taking"]) == (
        "east-south",
        "east.speeds",
        None,
    )
    assert "no period is settled yet to compare it with" in office.do("south", "contracts")
    office.say("north", StreamMetered("north-south", "north", period, 7, 600))
    office.say("north", Settled("north-south", "north", period, 350_000))
    assert office.json("south", "contracts")[0]["suggestions"][0]["worth_taking"] is True
    output = office.do("south", "contracts")
    assert "north suggests east.speeds instead, as east-south" in output
    assert "it costs less" in output
    with pytest.raises(ConfigurationError, match="--open-for soon"):
        office.do("north", *suggest, "--open-for", "soon", signs=True)


def of_plans(office: Office) -> None:
    """North and south agree on plans of a query of south's."""
    office.with_keys("north", "south")
    terms = PLANS_EXAMPLE.replace("2026-12-01", "1970-01-01").replace("2027-03-01", "2999-01-01")
    terms = terms.replace("north-billing-plans", "north-south").replace(
        "min_hold: 1m", "min_hold: 0s"
    )
    office.terms.write_text(terms.replace("billing", "south"))
    office.do("north", "contracts", "propose", str(office.terms), signs=True)
    office.do("south", "contracts", "sign", "north-south", signs=True)


def spoken(office: Office, *words: Word) -> None:
    """Append statements about the first proposal, which is north's."""
    for word in words:
        by = "north" if word is Word.PROPOSED else "south"
        office.say(by, PlanWord("north-south", by, word, 1, 1))


def test_a_movement_contract_shows_which_plan_is_active_and_is_cancelled(office: Office) -> None:
    of_plans(office)
    (row,) = office.json("south", "contracts")
    assert (row["for"], row["state"], row["buyer"]) == ("south.slow", "active", "south")
    assert (row["price_lowest_micro"], row["price_highest_micro"]) == (50, 90)
    assert (row["plans"]["active"], row["plans"]["proposed"]) == (0, None)
    assert "no load runs at another participant" in office.do("south", "market")
    spoken(office, Word.PROPOSED)
    assert "all at south; north proposes plan 1" in office.do("south", "contracts")
    spoken(office, Word.AGREED)
    assert "both have agreed to plan 1" in office.do("south", "contracts")
    spoken(office, Word.SWITCHED)
    (row,) = office.json("south", "contracts")
    assert (row["plans"]["active"], row["plans"]["at_sender"]) == (1, ["slow"])
    assert "slow at north" in office.do("north", "contracts")
    (moved,) = office.json("south", "market")
    assert (moved["tasks"], moved["run_by"], moved["to"]) == (["south.slow"], "north", None)
    assert "south.slow" in office.do("south", "market")
    assert office.json("south", "ledger")["balances_nano"] == {"north": 0, "south": 0}
    output = office.do("north", "contracts", "cancel", "north-south", signs=True)
    assert output == "north-south: cancelled; the plain plan applies\n"
    assert "all at south; cancelled" in office.do("south", "contracts")
    assert office.json("south", "market") == []
    (over,) = office.json("south", "market", "--all")
    assert (over["run_by"], over["why"], over["ended_by"]) == ("south", "cancelled", "north")
    assert "cancelled" in office.do("south", "market", "--all")
    with pytest.raises(ConfigurationError, match="the contract is cancelled"):
        office.do("south", "contracts", "cancel", "north-south", signs=True)


@pytest.mark.parametrize(
    ("agreed", "says"),
    [
        (Office.agreed, "only a movement contract is cancelled"),
        (of_a_stream, "north-south: it is not a movement contract"),
    ],
)
def test_only_a_movement_contract_is_cancelled(
    office: Office, agreed: Callable[[Office], object], says: str
) -> None:
    agreed(office)
    with pytest.raises(ConfigurationError, match=says):
        office.do("north", "contracts", "cancel", "north-south", signs=True)
    with pytest.raises(ConfigurationError, match="sees no contract other"):
        office.do("north", "contracts", "cancel", "other", signs=True)


def test_a_stage_is_named_by_contracts_for_load_or_by_a_movement_contract(office: Office) -> None:
    of_plans(office)
    load = office.folder / "load.yaml"
    text = EXAMPLE.replace("contract: north-south", "contract: other").replace("2027-", "2999-")
    load.write_text(text.replace("north.tolls", "south.slow"))
    with pytest.raises(ConfigurationError, match="may move under north-south already"):
        office.do("north", "contracts", "propose", str(load), signs=True)


@pytest.mark.parametrize(
    ("agreed", "text", "says"),
    [
        (Office.agreed, STREAM_EXAMPLE, "only a contract for a stream takes suggestions"),
        (of_plans, STREAM_EXAMPLE, "only a contract for one stream takes"),
        (of_a_stream, EXAMPLE, "is a contract for load"),
        (of_a_stream, PLANS_EXAMPLE, "not a valid contract"),
    ],
)
def test_one_stream_alone_is_suggested_and_for_one_stream_alone(
    office: Office, agreed: Callable[[Office], object], text: str, says: str
) -> None:
    agreed(office)
    office.terms.write_text(text.replace("billing", "south"))
    with pytest.raises(ConfigurationError, match=says):
        office.do("north", "contracts", "suggest", "north-south", str(office.terms), signs=True)


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
    assert (
        office.do("north", "keys", "signers", signs=True)
        == "nothing has changed since the last time\n"
    )
    assert office.json("south", "keys") == {"north": ["1"], "south": ["1"]}
    office.file("north").write_text(text)
    output = office.do("north", "keys", "signers", signs=True)
    assert output == "south may no longer sign north.totals\n"
