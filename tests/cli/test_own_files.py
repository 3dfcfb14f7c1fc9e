"""The command line on files as people have them: other separators, encodings and decimal signs, and dates."""

from __future__ import annotations

import pytest

from colonnade.errors import DataError
from colonnade.study import PartyConfig, Study
from colonnade.tables import Days

BANK = "Name;eröffnet;umsatz\r\n" + "".join(
    f"Jörg {n};{1 + n % 28:02}.{1 + n % 12:02}.20{10 + n % 9};{n},5\r\n" for n in range(60)
)
SHOP = "Name,Ort\n" + "".join(f"Jörg {n},{'Köln' if n % 3 else 'Ulm'}\n" for n in range(60))


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank.csv").write_bytes(BANK.encode("latin-1"))
    (tmp_path / "shop.csv").write_bytes(SHOP.encode("utf-16"))
    return tmp_path


def test_a_draft_is_enough_to_read_the_file(colonnade, files):
    colonnade("schema", "draft", "bank.csv", "--id", "Name")
    draft = files / "bank.toml"
    draft.write_text(draft.read_text().replace("drafted = true\n", ""))
    assert "60 rows fit" in colonnade("schema", "check", "bank.csv", "bank.toml", "--id", "Name")
    assert "did you mean 'Name'?" in colonnade(
        "schema", "check", "bank.csv", "bank.toml", "--id", "Nme", code=DataError.exit_code
    )


def test_a_trial_of_such_files(colonnade, files):
    text = colonnade(
        *("init", "trial", "--party", "bank=bank.csv", "--party", "shop=shop.csv", "--id", "Name"),
        *("--label", "bank.umsatz"),
    )
    assert "linear of bank.umsatz" in text
    study = Study.load("study.toml")
    assert isinstance(study.roster.schemas["bank"].columns["eröffnet"], Days)
    for name in ("bank", "shop"):
        table = PartyConfig.load(f"{name}/party.toml").table(study.roster.schemas[name], study.aligning.plan)
        assert table.rows == 60
        assert not table.report.misfits
