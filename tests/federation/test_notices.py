"""Keys that are renewed, protected and called back: what members sign counts, and nothing that a hub says alone."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from colonnade.cli import key_commands, membership
from colonnade.cli.initialise import party
from colonnade.errors import ConnectError, IdentityError
from colonnade.federation.agent import Agent
from colonnade.federation.checks import examine_member
from colonnade.federation.hub_protocol import FederationClient, HubQuestion
from colonnade.federation.members import (
    FederationMembers,
    MemberIdentity,
    RevokedKeys,
    accept_member,
    find_new_members,
)
from colonnade.federation.notices import (
    NoticeBoard,
    Renewal,
    Revocation,
    RevocationList,
    own_list,
    read_notice,
    take_notices,
)
from colonnade.federation.statements import AttemptReport, SignedStatement
from colonnade.wire import Certificate, Identity, certificates, identity as identities
from colonnade.wire.identity import IDENTITY_DAYS, PASSPHRASE
from tests.support.errors import raises

from .club import Club, Hub, club, identity, refused, retrying
from .test_hub import member

SIGNERS = '\n[revocations]\nsigners = ["bank", "shop", "clinic"]\nneeded = 2\n'
NOW = datetime.now(UTC)
HOUR = int(NOW.timestamp()) // 3600


@pytest.fixture
def ours(tmp_path: Path) -> Club:
    made = club(tmp_path)
    made.members.path.write_text(made.members.path.read_text() + SIGNERS)
    return made


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    found = Hub.of(tmp_path_factory.mktemp("hub"))
    yield found
    found.stop()


def named(*names: str) -> tuple[str, ...]:
    return tuple(sorted(key_of(name) for name in names))


def key_of(name: str) -> str:
    return identity(name).certificate.key_fingerprint


def listed(*signers: str, number: int = HOUR, revoked: tuple[str, ...] = named("ana")) -> list[bytes]:
    """The same list, signed by each of these."""
    return [RevocationList(name, number, revoked).pack(identity(name)) for name in signers]


def reread(ours: Club, notices: list[bytes]) -> FederationMembers:
    take_notices(ours.members.path, notices, NOW)
    return FederationMembers.load(ours.members.path)


@pytest.mark.parametrize(
    "notices",
    [
        listed("coordinator"),
        listed("coordinator", "bank"),
        listed("bank", "bank", "ana"),
        [*listed("bank"), *listed("shop", revoked=named("ana", "clinic"))],
        [*listed("bank"), *listed("shop", number=HOUR - 1)],
        listed("bank", "shop", "clinic", number=HOUR + 48),
        [*listed("bank"), listed("bank")[0].replace(b"bank", b"shop")],
        [Revocation("coordinator", *named("ana"), NOW).pack(identity("coordinator"))],
        [Revocation("bank", *named("ana"), NOW).pack(identity("bank"))],
        [Revocation("ana", *named("ana"), NOW).pack(Identity.create("ana"))],
        [b"", b"nonsense", b"colonnade-signed-1 revocations bank x\n{}"],
    ],
    ids=["hub", "hub and one", "one", "unlike", "two hours", "to come", "forged", "of the hub", "of another", "no key",
         "nonsense"],
)  # fmt: skip
def test_nobody_calls_another_key_back_alone(ours: Club, notices: list[bytes]) -> None:
    found = reread(ours, notices)
    assert (found.revoked.number, found.roles) == (0, ours.members.roles)


@pytest.mark.parametrize(
    "notices",
    [
        listed("bank", "shop"),
        listed("clinic", "bank", "shop"),
        [Revocation("ana", *named("ana"), NOW).pack(identity("ana"))],
    ],
    ids=["two of three", "three", "itself"],
)  # fmt: skip
def test_a_key_that_was_called_back_counts_for_nothing(ours: Club, notices: list[bytes]) -> None:
    proposal = ours.packed()
    found = reread(ours, notices)
    assert {*ours.members.roles} - {*found.roles} == {"ana"}
    refused("FE096", lambda: ours.proposal().unpack(proposal, found))
    replayed = [*listed("bank", "shop", number=HOUR - 1, revoked=()), *listed("bank", "clinic", number=1, revoked=())]
    for old in (replayed, []):
        assert reread(ours, old).roles == found.roles, "an older list, or none, brings nobody back"
        assert reread(ours, old).revoked.number >= found.revoked.number
    assert "ana" not in reread(ours, listed("bank", "shop", number=HOUR + 1, revoked=())).roles


def test_lists_that_differ_in_a_key_that_nobody_has_any_more_count_all_the_same(ours: Club) -> None:
    """A signer who joined after another key took its place cannot verify that the earlier one was called back."""
    old = Identity.create("ana").certificate.key_fingerprint
    found = reread(ours, [*listed("bank", revoked=(old,)), *listed("shop", revoked=())])
    assert (found.revoked.number, found.revoked.revoked) == (HOUR, frozenset())
    now = [*listed("bank", "clinic", number=HOUR + 1, revoked=(old,)), *listed("shop", number=HOUR + 1, revoked=())]
    found = reread(ours, now)
    assert (found.revoked.number, found.revoked.revoked) == (HOUR + 1, {old})


def test_lists_end_after_a_week_and_agents_of_signers_make_them(ours: Club) -> None:
    path = ours.members.path
    refused("FE783", FederationMembers.load(path).check_listed, NOW)
    assert own_list(FederationMembers.load(path), "ana", NOW) is None
    said = [own_list(FederationMembers.load(path), name, NOW) for name in ("bank", "shop")]
    found = reread(ours, [each.pack(identity(each.by)) for each in said])
    found.check_listed(NOW)
    found.check_listed(NOW + timedelta(days=7) - timedelta(hours=1))
    refused("FE783", found.check_listed, NOW + timedelta(days=7, hours=1))
    assert own_list(found, "bank", NOW) is None
    RevokedKeys(found.revoked.number, frozenset(), frozenset(named("ana"))).save(path.parent)
    assert own_list(FederationMembers.load(path), "bank", NOW).revoked == named("ana")
    (path.parent / "revocations.json").write_text("[")
    refused("FE782", FederationMembers.load, path)


@pytest.mark.parametrize(
    "wrong",
    [
        'signers = ["bank", "shop"]\nneeded = 1',
        'signers = ["bank", "shop", "clinic", "ana"]\nneeded = 2',
        'signers = ["bank", "coordinator"]\nneeded = 2',
        'signers = ["bank", "bank"]\nneeded = 2',
        'signers = ["bank", "shop"]\nneeded = 3',
    ],
)
def test_a_hub_is_no_signer_and_cannot_choose_between_two_lists(tmp_path: Path, wrong: str) -> None:
    path = club(tmp_path).members.path
    path.write_text(f"{path.read_text()}\n[revocations]\n{wrong}\n")
    refused("FE036|VA781", FederationMembers.load, path)


def test_an_agent_takes_no_new_study_while_lists_are_held_back(hub: Hub, tmp_path: Path) -> None:
    path = tmp_path / "FEDERATION.toml"
    file = member(hub, tmp_path, "shop", "ana", "clinic")
    path.write_text(path.read_text() + SIGNERS)
    agent = Agent(file)
    with hub.line("ana") as ana:
        told = ana.tell(hub.proposal("bank", "shop"))
    agent._process_news({"studies": [told]})
    agent._sync._fetch()
    assert agent.store.entries() == [], "no list has ever come"
    assert {check.what: check.level for check in examine_member(file)}["revocations"] == "bad"
    agent._sync._compare_members()  # the bank signs one, and the hub has no other
    agent._reread()
    assert agent.members.revoked.number == 0
    with hub.line("shop") as shop:
        (said,) = [RevocationList.unpack(raw, hub.members) for raw in shop.notices()]
        shop.give_notice(replace(said, by="shop"))
        refused("FE781", shop.request, dict, HubQuestion("notice"), *listed("bank"))
        take_notices(path, shop.notices(), datetime.now(UTC))
    agent._reread()
    agent._sync._fetch()
    (entry,) = agent.store.entries()
    assert (entry.id, entry.state) == (told["id"], "checking")
    agreed = replace(entry, answers=dict.fromkeys(entry.answers, True))
    assert agent._may_begin(agreed)
    RevokedKeys(HOUR - 24 * 8).save(tmp_path)
    os.utime(path)
    agent._reread()
    assert not agent._may_begin(agreed), "nor is one begun that was approved"


# --- renewal


def test_a_renewed_certificate_is_pinned_by_all_and_one_of_another_key_by_nobody(ours: Club) -> None:
    bank, forged = identity("bank").renewed(365), Identity.create("bank")
    wrong: list[tuple[SignedStatement, str]] = [
        (Renewal("coordinator", forged.certificate, NOW), "coordinator"),
        (Renewal("shop", forged.certificate, NOW), "shop"),
        (Renewal("bank", identity("shop").certificate, NOW), "bank"),
        (Renewal("bank", forged.certificate, NOW), "bank"),
    ]
    raws = [said.pack(identity(signer)) for said, signer in wrong]
    raws += [Renewal("bank", forged.certificate, NOW).pack(forged)]
    assert reread(ours, raws).pins == ours.members.pins
    refused("FE800", wrong[3][0].check, ours.members)
    found = reread(ours, [Renewal("bank", bank.certificate, NOW).pack(identity("bank"))])
    assert found.pins == ours.members.pins | {"bank": bank.fingerprint}
    dates = NOW - timedelta(days=99), NOW + timedelta(days=9)
    older = Certificate("bank", certificates._self_signed(identity("bank")._key, "bank", 7, *dates))
    assert reread(ours, [Renewal("bank", older, NOW).pack(bank)]).pins == found.pins, "nor back to an older one"


def test_a_key_is_called_back_with_all_its_certificates_whatever_was_renewed(ours: Club) -> None:
    bank = identity("bank")
    thief = Renewal("bank", bank.renewed(365).certificate, NOW).pack(bank)
    revoked = Revocation("bank", key_of("bank"), NOW).pack(bank)
    refused("FE806", Revocation.unpack, Revocation("bank", key_of("shop"), NOW).pack(bank), ours.members)
    for notices in ([thief], [thief, revoked], [thief]):
        found = reread(ours, notices)
    assert "bank" not in found.roles, "a certificate that was renewed before, or is again, brings nobody back"
    again = find_new_members(found, replace(found, certificates=ours.members.certificates, roles=ours.members.roles))
    assert again == [], "nor does a hub that goes on naming it"
    refused("FE801", found.with_member, bank.renewed(9).certificate, "party")


def rekeyed(members: FederationMembers, name: str = "bank") -> Identity:
    """Another key of a member, which people have accepted."""
    fresh = Identity.create(name)
    accept_member(members.path, MemberIdentity(name, members.roles[name], fresh.certificate, known=True))
    return fresh


@pytest.mark.parametrize("renewals", [0, 1])
def test_a_key_is_called_back_by_itself_also_after_another_took_its_place(ours: Club, renewals: int) -> None:
    old = Identity.create("bank", days=1)
    fresh = Identity.create("bank")
    path, revoked = ours.members.path, Revocation("bank", old.certificate.key_fingerprint, NOW + timedelta(days=99))
    accept_member(path, MemberIdentity("bank", "party", old.certificate, known=True))
    told = [Renewal("bank", old.renewed(days).certificate, NOW).pack(old) for days in range(2, 2 + renewals)]
    reread(ours, told)
    accept_member(path, MemberIdentity("bank", "party", fresh.certificate, known=True))
    forged = Revocation("bank", fresh.certificate.key_fingerprint, NOW).pack(old)
    assert reread(ours, [*told, forged]).revoked.revoked == set(), "an earlier key calls no later one back"
    refused("FE097", read_notice, forged, ours.members)
    for notices in ([*told, revoked.pack(old)], [revoked.pack(old), *told]):
        found = reread(ours, notices)
        assert (found.pins["bank"], found.revoked.revoked) == (fresh.fingerprint, {revoked.key})
    report = AttemptReport("ab" * 16, 1, "bank", "finished", NOW, "0" * 64).pack(old)
    assert found.revoked.cover(AttemptReport.unpack_earlier(report, found)[1]), "nor does what it signed count"
    refused("FE801", found.with_member, old.renewed(9).certificate, "party")


def test_a_hub_takes_the_revocation_of_an_earlier_key_from_anybody(ours: Club, tmp_path: Path) -> None:
    board, path = NoticeBoard(tmp_path / "board"), ours.members.path
    fresh, revoked = rekeyed(ours.members), Revocation("bank", key_of("bank"), NOW).pack(identity("bank"))
    for _ in range(2):  # whoever hands on what is known already is not refused
        board.take(revoked, "shop", FederationMembers.load(path))
    found = FederationMembers.load(path)
    assert (board.all(), found.revoked.revoked, found.pins["bank"]) == ([revoked], {*named("bank")}, fresh.fingerprint)


def test_a_list_counts_nobody_whose_key_was_called_back_with_it(ours: Club) -> None:
    revoked = Revocation("bank", key_of("bank"), NOW).pack(identity("bank"))
    for notices in ([revoked, *listed("bank", "shop")], [*listed("bank", "shop"), revoked]):
        found = reread(ours, notices)
        assert (found.revoked.number, found.revoked.revoked) == (0, {*named("bank")})


def test_a_certificate_that_an_earlier_release_called_back_takes_its_key_along(ours: Club) -> None:
    RevokedKeys(revoked=frozenset([identity("bank").fingerprint])).save(ours.members.path.parent)
    found = FederationMembers.load(ours.members.path)
    assert ("bank" in found.roles, found.revoked.cover(identity("bank").renewed(9).certificate)) == (False, True)
    rekeyed(ours.members)
    found = FederationMembers.load(ours.members.path)
    assert ("bank" in found.roles, found.revoked.cover(identity("bank").renewed(9).certificate)) == (True, True)


def test_whoever_was_called_back_comes_back_with_another_key_in_its_place(ours: Club) -> None:
    path, bank = ours.members.path, Identity.create("bank")
    pin = ours.members.pins["bank"]
    path.write_text(path.read_text().replace(f'pin = "{pin}"', f"pin='{pin}' # ours"))
    found = reread(ours, [Revocation("bank", key_of("bank"), NOW).pack(identity("bank"))])
    newcomer = MemberIdentity("bank", "party", bank.certificate)
    for wrong in (MemberIdentity("bank", "analyst", bank.certificate), MemberIdentity("bank", "hub", bank.certificate)):
        before = path.read_text()
        refused("FE802", accept_member, path, wrong)
        assert path.read_text() == before, "what would not load is never written"
    assert accept_member(path, newcomer).roles.keys() == ours.members.roles.keys()
    found = FederationMembers.load(path)
    assert (found.pins["bank"], found.first["bank"]) == (bank.fingerprint, key_of("bank"))
    assert path.read_text().count('[members."bank"]') == path.read_text().count("# ours") == 1
    assert [each.fingerprint for each in found.former] == [ours.members.pins["bank"]]
    third = Identity.create("bank")
    accept_member(path, MemberIdentity("bank", "party", third.certificate, known=True))
    assert FederationMembers.load(path).first["bank"] == key_of("bank"), "the first key of all"


def test_whoever_changes_the_files_waits_for_the_others(ours: Club) -> None:
    path, done = ours.members.path, threading.Event()

    def revoke() -> None:
        take_notices(path, [Revocation("shop", key_of("shop"), NOW).pack(identity("shop"))], NOW)
        done.set()

    with FederationMembers.changing(path) as found:
        (other := threading.Thread(target=revoke)).start()
        replace(found.revoked, wanted=frozenset(named("clinic"))).save(path.parent)
        assert not done.wait(0.1)
    other.join()
    known = FederationMembers.load(path).revoked
    assert (known.revoked, known.wanted) == ({*named("shop")}, {*named("clinic")})


def test_keys_are_renewed_called_back_and_protected_by_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub.of(tmp_path / "hub")
    try:
        file, key = member(hub, tmp_path / "bank"), tmp_path / "bank" / "bank.key"
        agent = Agent(member_of_shop(hub, tmp_path / "shop"))
        before, old = key.read_bytes(), FederationMembers.load(hub.path).pins["bank"]
        monkeypatch.setenv(PASSPHRASE, "open sesame")
        key_commands.protect(key)
        assert b"ENCRYPTED" in key.read_bytes()
        key_commands.renew(file, days=90)
        assert b"ENCRYPTED" in key.read_bytes()
        monkeypatch.setenv(PASSPHRASE, "open barley")
        with raises(IdentityError, "ID026"):
            Identity.load(key, key.with_suffix(".crt"))
        monkeypatch.delenv(PASSPHRASE)
        with raises(IdentityError, "ID781"):
            Identity.load(key, key.with_suffix(".crt"))
        held = {("colonnade", str(key)): "open sesame"}
        ring = SimpleNamespace(
            get_password=lambda *of: held.get(of), set_password=lambda *of: held.update({of[:2]: of[2]})
        )
        monkeypatch.setattr(identities, "import_module", lambda name: ring)
        new = Identity.load(key, key.with_suffix(".crt"))
        key_commands.protect(key, ring=True)
        retrying(lambda: hub.keeper.members.pins["bank"], lambda pin: pin == new.fingerprint != old)
        agent._sync._compare_members()
        key_commands.renew(file)
        key_commands.protect(key, remove=True)
        assert b"ENCRYPTED" not in key.read_bytes() == before
        new = Identity.load(key, key.with_suffix(".crt"))
        retrying(lambda: hub.keeper.members.pins["bank"], lambda pin: pin == new.fingerprint)
        agent._reread()
        agent._sync._compare_members()
        agent._reread()
        assert agent.members.pins["bank"] == FederationMembers.load(file.parent / "FEDERATION.toml").pins["bank"]
        assert Agent(file)._identity.fingerprint == new.fingerprint == agent.members.pins["bank"]
        key_commands.revoke(file, "bank", json=True)
        assert '"confirmed_by_hub": true' in capsys.readouterr().out
        retrying(lambda: hub.keeper.members.roles, lambda roles: "bank" not in roles)
        agent._sync._compare_members()
        agent._reread()
        assert "bank" not in agent.members.roles
        with pytest.raises((IdentityError, ConnectError)):
            retrying_once(hub, new)
        refused("FE784", key_commands.revoke, agent._party_file, "bank")
        key_commands.revoke(agent._party_file, "ana")
        assert "ana" not in FederationMembers.load(tmp_path / "shop" / "FEDERATION.toml").roles
    finally:
        hub.stop()


def test_what_a_key_says_of_itself_is_handed_on_where_no_hub_confirms_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub.of(tmp_path / "hub")
    file, shop = member(hub, tmp_path / "bank"), member_of_shop(hub, tmp_path / "shop")
    hub.stop()
    for _ in range(2):
        refused("FE805", key_commands.revoke, file, "bank")
        assert "bank" not in FederationMembers.load(tmp_path / "bank" / "FEDERATION.toml").roles
    capsys.readouterr()
    membership.members(file, json=True)
    assert '"bank"' not in capsys.readouterr().out, "with a key that was called back nobody is asked"
    left = tmp_path / "bank" / "bank.revocation"
    refused("FE804", key_commands.revoke, shop, notice=tmp_path / "no such file")
    (tmp_path / "forged").write_bytes(left.read_bytes().replace(b"bank", b"ana"))
    refused("FE097", key_commands.revoke, shop, notice=tmp_path / "forged")
    key_commands.revoke(shop, notice=left, json=True)
    assert '"confirmed_by_hub": false' in capsys.readouterr().out
    assert "bank" not in FederationMembers.load(tmp_path / "shop" / "FEDERATION.toml").roles
    refused("FE784", key_commands.revoke, shop)


def test_commands_call_an_earlier_key_back_and_never_the_one_that_took_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = Hub.of(tmp_path / "hub")
    bank, shop = member(hub, tmp_path / "bank").parent / "FEDERATION.toml", member_of_shop(hub, tmp_path / "shop")
    hub.stop()
    theirs = FederationMembers.load(shop.parent / "FEDERATION.toml")
    fresh, key = rekeyed(theirs), tmp_path / "bank" / "bank.key"
    FederationMembers.load(bank).with_member(fresh.certificate, "party").save(
        bank
    )  # by hand, so no earlier one is kept
    refused("FE805", key_commands.revoke, bank, "bank", key=key)
    ours = FederationMembers.load(bank)
    assert (ours.revoked.revoked, ours.pins["bank"]) == ({*named("bank")}, fresh.fingerprint)
    left = tmp_path / "bank" / "bank.revocation"
    refused(("FE784", "ana", "bank", "bank.revocation"), key_commands.revoke, shop, "ana", notice=left)
    assert FederationMembers.load(theirs.path).revoked == theirs.revoked, "nothing was taken"
    capsys.readouterr()
    for name in (None, "bank"):
        key_commands.revoke(shop, name, notice=left, json=True)
        told = json.loads(capsys.readouterr().out)
        found = FederationMembers.load(theirs.path)
        assert (told["revoked"], {told["key"]}, found.revoked.revoked) == ("bank", {*named("bank")}, {*named("bank")})
        assert found.pins["bank"] == fresh.fingerprint


def test_whoever_asks_for_an_earlier_key_to_be_called_back_names_its_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = club(tmp_path)
    ours.keys["shop"].save(tmp_path)
    fresh = rekeyed(ours.members)
    key_commands.revoke(ours.members.path, identity("bank").fingerprint, key=tmp_path / "shop.key")
    found = FederationMembers.load(ours.members.path)
    assert (found.revoked.wanted, found.pins["bank"]) == ({*named("bank")}, fresh.fingerprint)
    refused("FE784", key_commands.revoke, ours.members.path, "sha256:" + "0" * 64, key=tmp_path / "shop.key")


def member_of_shop(hub: Hub, folder: Path) -> Path:
    """The party file of the shop, which knows all members."""
    hub.club.keys["shop"].save(folder)
    hub.members.save(folder / "FEDERATION.toml")
    party("shop", folder, "shop.csv", "person_id", federation="FEDERATION.toml")
    return folder / "party.toml"


def retrying_once(hub: Hub, who: Identity) -> None:
    with FederationClient(hub.members, who) as line:
        line.news(0, wait=0)


@pytest.mark.parametrize(("days", "level"), [(29, "unsure"), (40, None), (-1, "bad")])
def test_the_doctor_warns_a_month_before_a_certificate_expires(tmp_path: Path, days: int, level: str | None) -> None:
    (tmp_path / "party.toml").write_text(
        'name = "bank"\ndata = "bank.csv"\nkey = "bank.key"\nledger = "ledger.sqlite"\n[policy]\ntasks = ["pca"]\n'
        'columns = "all"\n[policy.budget]\nepsilon = 1.0\ndelta = 1e-5\n'
    )
    made = Identity.create("bank", days=max(days + 1, 0))
    if days < 0:
        made = Identity.from_seed("bank", bytes(32), NOW - timedelta(days=3))
    made.save(tmp_path)
    found = {check.what: check.level for check in examine_member(tmp_path / "party.toml")}
    assert found.get("expiry") == level


def test_a_new_key_is_good_for_a_year(tmp_path: Path) -> None:
    refused("FE785", key_commands.renew, club(tmp_path).members.path)
    fresh = Identity.create("bank")
    left = fresh.certificate.parsed.not_valid_after_utc - datetime.now(UTC)
    assert (IDENTITY_DAYS, left.days in (364, 365)) == (365, True)
    assert MemberIdentity("bank", "party", Identity.create("bank", days=20).certificate).advice
