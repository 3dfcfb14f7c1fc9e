"""A participant whose rules or wire really differ is refused, in a process of its own, before anything is spent."""

from __future__ import annotations

from colonnade import errors, versions

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
        assert " and bank do not follow the same rules (how text is compared): " in sentence
        assert sentence.count(f"has {versions.in_words()}") == 2
        assert sentence.endswith("install the same versions everywhere")
    for name in study.parties:
        assert ended[name].code == errors.PeerStopped.exit_code
        assert study.states(name) == ["released"]


def test_another_wire_is_refused(trial):
    study = trial()
    study.start_bank_last(script=EARLIER_WIRE)
    ended = study.ends()
    for name in study.parties[1:]:
        assert ended[name].code in (errors.ProtocolError.exit_code, errors.PeerStopped.exit_code)
        assert "speaks another version of the wire protocol (3; ours is 4)" in ended[name].sentence
        assert ended[name].sentence.endswith("install the same release of Colonnade on both machines")
    assert "wire protocol (4; ours is 3)" in ended["bank"].sentence or "(3; ours is 4)" in ended["bank"].sentence
    assert all(study.states(name) == ["released"] for name in study.parties)
