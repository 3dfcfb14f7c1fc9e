"""The check of a proposal: what it would cost, what would be left, and a plain no where policy or budget say no."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.standing import lanes_in
from colonnade.console.pages.study import needs
from colonnade.errors import BudgetError, StudyError
from colonnade.privacy import Ledger
from colonnade.standing import assess
from colonnade.standing.children import Limits
from colonnade.standing.proposing import proposal_of
from colonnade.study import PartyConfig, Study
from tests.support.errors import raises
from tests.support.organisations import Organisations


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Organisations:
    return Organisations(tmp_path_factory.mktemp("federation"), ask=("clinic",))


def written(three: Organisations, folder: Path, **changes: Any) -> tuple[Path, str, str]:
    """A proposed study as an agent writes it down, its name and its digest."""
    until = datetime.now(UTC) + timedelta(days=1)
    proposal, _ = proposal_of(three.study(**changes), three.members, "ana", "to know", until)
    return proposal.write(folder, three.members), proposal.name, proposal.digest


def test_the_assessment_has_what_a_person_needs(three: Organisations, tmp_path: Path) -> None:
    path, name, digest = written(three, tmp_path)
    config = PartyConfig.load(three.party_file("bank"))
    found, study = assess.assess(path, config, name, digest)
    assert study is not None
    assert found["refused"] is None
    assert found["columns"] == list(study.schemas["bank"].names)
    assert set(found["others"]) == {"shop", "clinic"}
    assert found["statement"] == study.statement.to_dict()
    assert found["text"] == str(study.statement)
    price = {row["observer"]: row["epsilon"] for row in found["statement"]["rows"]}
    for cap in found["left"]:
        assert cap["spent"] == 0
        assert cap["at_most"] >= cap["after"]
    analyst = next(cap for cap in found["left"] if cap["observer"] == "analyst")
    assert analyst["cap"] == 3.0
    assert analyst["after"] == pytest.approx(price["analyst"])
    assert analyst["at_most"] > 1.2 * analyst["after"], "three attempts cost more than one"
    assert found["attempts"] == 3
    assert found["preflight"]["rounds"] > 0
    json.dumps(found, allow_nan=False)
    assert assess.own_eyes(study, config)["people"] == config.rows_held(study.schemas["bank"])
    assert not (three.folder / "bank" / "ledger.sqlite").exists(), "a check makes no ledger"


def test_a_budget_that_is_too_small_is_a_refusal(three: Organisations, tmp_path: Path) -> None:
    path, name, digest = written(three, tmp_path, name="dear", epsilon=9.0)
    found, _ = assess.assess(path, PartyConfig.load(three.party_file("bank")), name, digest)
    assert "over budget" in found["refused"]
    assert found["statement"], "the price is shown all the same"


def test_a_cap_for_the_analyst_holds_for_a_member_who_watches_the_hub(three: Organisations, tmp_path: Path) -> None:
    """Such a member sees what the coordinator sees, so the dearer of the two rows is checked and shown."""
    path, name, digest = written(three, tmp_path)
    statement = Study.load(path).statement.to_dict()
    price = {row["observer"]: row["epsilon"] for row in statement["rows"] if row.get("missing") is None}
    assert price["analyst"] < price["coordinator"]
    between = (price["analyst"] + price["coordinator"]) / 2
    given = three.party_file("bank")
    text = re.sub("(?m)^epsilon = .*$", f"epsilon = {{ analyst = {between}, others = 9.0 }}", given.read_text())
    agents, by_hand = (given.with_name(f"{each}.toml") for each in ("watched", "alone"))
    agents.write_text(text)
    by_hand.write_text(text.partition("[agent]")[0])
    found, study = assess.assess(path, PartyConfig.load(agents), name, digest)
    assert study is not None
    left = {cap["observer"]: (cap["cap"], cap["after"]) for cap in found["left"]}
    assert left["analyst at the hub"] == pytest.approx((between, price["coordinator"]))
    assert left["analyst"] == pytest.approx((between, price["analyst"]))
    assert "over budget: analyst at the hub: spent 0" in found["refused"]
    PartyConfig.load(by_hand).check_budget(study)  # nobody proposes there: the analyst has the result alone
    events, trust, keys = study.events, study.trust, study.keys()
    config, book = PartyConfig.load(agents), Ledger(tmp_path / "ledger.sqlite", owner="bank")
    with raises(BudgetError, "BU002"):
        book.reserve(name, digest, events, trust, config.caps, config.periods, keys)
    book.reserve(name, digest, events, trust, PartyConfig.load(by_hand).caps, (), keys)
    spent = {each.who: each.spent for each in book.left(config.caps)}
    assert spent["analyst at the hub"] == pytest.approx(price["coordinator"])


def test_another_study_than_the_one_signed_is_refused(three: Organisations, tmp_path: Path) -> None:
    path, name, digest = written(three, tmp_path)
    path.write_text(path.read_text().replace("n_components = 2", "n_components = 3"))
    found, study = assess.assess(path, PartyConfig.load(three.party_file("bank")), name, digest)
    assert "signed another" in found["refused"]
    assert study is None


def test_a_child_checks_it_within_its_limits(three: Organisations, tmp_path: Path) -> None:
    path, name, digest = written(three, tmp_path / "study")
    said = {"name": name, "digest": digest}
    enough = Limits(4 * 10**9, 300)
    child = assess.checked_in_child(path, three.party_file("clinic"), said, tmp_path / "check", enough)
    found = assess.wait_for(child)
    assert found["refused"] is None
    assert found["people"] > 0
    assert "new" in found["schema_news"]
    little = assess.checked_in_child(path, three.party_file("clinic"), said, tmp_path / "little", Limits(10**8, 300))
    assert "within the memory and time" in assess.wait_for(little)["refused"]


def test_the_table_decides_nothing(three: Organisations, tmp_path: Path) -> None:
    """A check may not tell the analyst anything about the table: not even that it cannot be read."""
    path, name, digest = written(three, tmp_path)
    table = three.folder / "shop" / "shop.csv"
    kept = table.read_bytes()
    table.write_bytes(b"\xff\x00 no table at all")
    try:
        config = PartyConfig.load(three.party_file("shop"))
        found, study = assess.assess(path, config, name, digest)
        assert found["refused"] is None
        assert study is not None
        assert assess.own_eyes(study, config)["people"] is None
    finally:
        table.write_bytes(kept)


def test_propose_fills_in_pins_and_address(three: Organisations, tmp_path: Path) -> None:
    path, _, digest = written(three, tmp_path)
    study = Study.load(path)
    assert study.digest == digest
    assert study.content.pins == {name: three.members.pins[name] for name in study.participants}
    assert study.content.coordinator.address == three.members.address
    study.certificates()


def in_lanes(three: Organisations, name: str, hubs: str = "") -> Path:
    path = three.study(name)
    path.write_text(f"{path.read_text()}\n[lanes]\npartitions = 4\n{hubs}")
    return path


def test_a_study_in_lanes_is_checked_as_any_other_and_says_so(three: Organisations, tmp_path: Path) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    proposal, cost = proposal_of(in_lanes(three, "lanes"), three.members, "ana", "to know", until)
    assert cost.partitions == 4
    path = proposal.write(tmp_path, three.members)
    found, study = assess.assess(path, PartyConfig.load(three.party_file("bank")), "lanes", proposal.digest)
    assert study is not None
    assert found["refused"] is None
    assert found["preflight"]["partitions"] == 4
    assert ("Partitions, added up by our workers", "4") in needs(found)
    assert lanes_in(found) == "lanes: people are added up in 4 partitions, by workers of everybody"
    path, name, digest = written(three, tmp_path / "plain")
    found, _ = assess.assess(path, PartyConfig.load(three.party_file("bank")), name, digest)
    assert "partitions" not in found["preflight"]
    assert lanes_in(found) == ""


def test_further_hubs_are_not_proposed(three: Organisations) -> None:
    path = in_lanes(three, "hubs", '[coordinator]\naddress = "h:1"\nhubs = ["h:2"]\n')
    with raises(StudyError, "FE067", "hubs.toml"):
        proposal_of(path, three.members, "ana", "to know", datetime.now(UTC) + timedelta(days=1))
