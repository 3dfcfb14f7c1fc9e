"""A participant whose rules or wire really differ is refused, in a process of its own, before anything is spent."""

from __future__ import annotations

from colonnade import errors, versions
from tests.support.errors import check_said

DECOMPOSES = """
from functools import partial
import unicodedata
from colonnade.cli import main
from colonnade.tables import normal

normal._FORMS["NFC"] = partial(unicodedata.normalize, "NFD")  # as pyarrow did before 26
main()
"""
EARLIER_WIRE = """
from colonnade.cli import main
from colonnade.wire import tls

tls._VERSION = b"colonnade wire 3"
main()
"""


def test_other_rules_are_refused(trial):
    study = trial()
    study.start_bank_last(script=DECOMPOSES)
    ended = study.ends()
    assert ended["coordinator"].code == errors.ProtocolError.exit_code
    for name in ("coordinator", *study.parties):
        sentence = ended[name].sentence
        check_said(sentence, "MS043", "bank")
        assert sentence.count(f"has {versions.in_words()}") == 2
    for name in study.parties:
        assert ended[name].code == errors.PeerStopped.exit_code
        assert study.states(name) == ["released"]


def test_another_wire_is_refused(trial):
    study = trial()
    study.start_bank_last(script=EARLIER_WIRE)
    ended = study.ends()
    for name in study.parties[1:]:
        assert ended[name].code in (errors.ProtocolError.exit_code, errors.PeerStopped.exit_code)
        check_said(ended[name].sentence, "MS095", "3", "4")
    check_said(ended["bank"].sentence, "MS095", "3", "4")
    assert all(study.states(name) == ["released"] for name in study.parties)
