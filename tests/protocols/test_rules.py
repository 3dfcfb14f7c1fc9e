from __future__ import annotations

import unicodedata
from functools import partial
from importlib import metadata

import numpy as np
import pytest

from colonnade import versions
from colonnade.errors import ProtocolError
from colonnade.mpc import oblivious
from colonnade.mpc.fixed_point import arithmetic, masks
from colonnade.mpc.shamir import CommonKeys
from colonnade.protocols import compatibility, session
from colonnade.tables import cell_parsing, dates, dates as days, keys
from tests.support.errors import raises, refused

# Equal with every supported Python, numpy and pyarrow. Change a line only together with the rule: participants of
# releases in which it differs refuse each other.
DIGESTS = {
    "rounding": "06f8a0cce0c7c3ae",
    "streams": "e75eaf829043167e",
    "parts": "12561ba8c5caa534",
    "masked": "b0a5067262dc367c",
    "ids": "af6c72d788f85908",
    "cells": "fbd25b363f50dc77",
    "hashes": "9d848968fd0c815c",
    "text": "5882e8f66c53a6e9",
    "numbers": "fea519cec3437624",
    "dates": "dad0b9bf6c831984",
    "group": "13a016c39635392a",
    "transfers": "bb1ceee1a81091f6",
}


def told(**changed: str) -> compatibility.CompatibilityRecord:
    return {"rules": " ".join(f"{k}={v}" for k, v in (DIGESTS | changed).items()), "has": "colonnade 0.1.0"}


def of_coordinator(without: str = "") -> compatibility.CompatibilityRecord:
    """What a coordinator tells, which has no table."""
    every = {"rounding", "streams", "parts", "masked"} - {without}
    return {"rules": " ".join(f"{k}={v}" for k, v in DIGESTS.items() if k in every), "has": "colonnade 0.1.0"}


def test_rules_are_the_same_with_every_version() -> None:
    compatibility._digest.cache_clear()  # another test may have run a study under other rules
    found = compatibility.compatibility_record("bank", aligns=True)
    assert dict(one.split("=") for one in found["rules"].split()) == DIGESTS
    session.READY.check(found, "bank")
    assert set(compatibility._MEANING) == set(DIGESTS)
    # Everybody tells the rules that it applies.
    assert compatibility.compatibility_record("coordinator", aligns=True)["rules"] == of_coordinator()["rules"]
    assert [one.split("=")[0] for one in compatibility.compatibility_record("bank", aligns=False)["rules"].split()] == [
        *DIGESTS
    ][:7]


def half_up(values, **more):
    return np.floor(np.asarray(values) + 0.5, **more)


CHANGED = {
    "another form of letters": ("text", [(keys._FORMS, "NFC", partial(unicodedata.normalize, "NFD"))]),
    "other blanks": ("text", [(keys, "BLANKS", " ")]),
    "halves are rounded up": ("rounding", [(np, "rint", half_up)]),
    "an earlier first day": ("dates", [(days, "_FIRST_DAY", -900_000)]),
    "weeks begin on another day": ("cells", [(dates, "_BEFORE_THURSDAY", 4)]),
    "other signs between thousands": ("cells", [(cell_parsing._MARKS, ",", "_")]),
    # Other limbs are drawn before the first sharing of zero.
    "other chunks": ("masked", [(masks, "CHUNK", 1 << 14)]),
    "longer limbs": ("masked", [(masks, "LONG_LIMB", 24)]),
    "another way for many": ("masked", [(arithmetic, "FLAT", 1 << 22)]),
    "another first guess": ("masked", [(arithmetic, "_COEFFICIENT_BITS", 11)]),
    "no sharing of zero": ("masked", [(CommonKeys, "add_zero", lambda self, target, degree: None)]),
    "another stream": ("masked", [(CommonKeys, "pair_stream", lambda self, dealer, seat: self._between[seat, dealer])]),
    "other pieces": ("transfers", [(oblivious, "PIECE", 1 << 10)]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_digests_are_computed(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    name, patches = CHANGED[change]
    try:
        with monkeypatch.context() as patch:
            for where, what, other in patches:
                set_it = patch.setitem if isinstance(where, dict) else patch.setattr
                set_it(where, what, other)
            compatibility._digest.cache_clear()
            arithmetic._root_plan.cache_clear()
            found = dict(
                one.split("=") for one in compatibility.compatibility_record("bank", aligns=True)["rules"].split()
            )
        assert found[name] != DIGESTS[name]
    finally:
        arithmetic._root_plan.cache_clear()
        compatibility._digest.cache_clear()


def test_one_sentence_names_the_rule_and_the_versions_and_equal_rules_pass() -> None:
    compatibility.compare_records({"coordinator": told(), "bank": told(), "shop": told()})
    compatibility.compare_records({"coordinator": of_coordinator(), "bank": told(), "shop": told()})
    other = {**told(text="0" * 16), "has": "colonnade 0.1.0, Python 3.11.7, pyarrow 22.0.0"}
    versions = "shop has colonnade 0.1.0, Python 3.11.7, pyarrow 22.0.0; bank has colonnade 0.1.0"
    with raises(ProtocolError, "MS043", "how text is compared", versions) as caught:
        compatibility.compare_records({"coordinator": of_coordinator(), "bank": told(), "shop": other})
    assert caught.value.public


@pytest.mark.parametrize(
    ("coordinator", "other", "named"),
    [
        (told(), told(rounding="0" * 16), ()),
        (told(), told(novel="0" * 16), ()),
        (told(), {**told(), "rules": f"rounding={DIGESTS['rounding']}"}, ()),
        *(
            (of_coordinator(without=rule), told(), compatibility._MEANING[rule])
            for rule in ("parts", "masked", "streams")
        ),
    ],
    ids=["another digest", "a rule that we do not know", "fewer rules", "no parts", "no masks", "no streams"],
)
def test_whatever_differs_and_a_coordinator_that_does_not_know_a_rule_is_refused(coordinator, other, named) -> None:
    refused(
        ProtocolError,
        "MS043",
        named,
        compatibility.compare_records,
        {"coordinator": coordinator, "bank": told(), "shop": other},
    )


def test_versions_tell_nothing_else() -> None:
    found = versions.installed_versions()
    assert found["colonnade"] == versions.own_version() == metadata.version("colonnade")
    assert all("/" not in text and len(text) < 40 for text in found.values())
