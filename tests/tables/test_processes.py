"""What only other processes show: partitions that they open, what they leave when killed, and other machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from colonnade.tables import Key, KeyPlan, Schema, flag, number, read_table
from colonnade.tables.spool import gather, split
from tests.support.tables import in_another_process, in_texts

pytestmark = pytest.mark.system
SCHEMA = Schema({"age": number(0, 99, missing="none"), "ill": flag(missing=False)})
PLAN = KeyPlan((Key("person_id"),))

OPEN = """
import json, sys
from colonnade.tables import Schema
from colonnade.tables.spool import Spool
part = Spool.open(sys.argv[1], Schema.load(sys.argv[2])).partition(int(sys.argv[3]))
print(json.dumps([part.keys.names, [v.hex() for v in part.keys.values], part.row_numbers.tolist(), list(part.own_ids),
    part.source, part.misfits, part.matrix().tolist()]))
"""


def test_another_process_opens_one_partition(tmp_path: Path) -> None:
    schema = SCHEMA.save(tmp_path / "schema.toml")
    whole = read_table(in_texts(40, 8), SCHEMA, keys=PLAN, name="table of ours")
    spool = split(whole, lambda keys: [len(key) % 2 for key in keys], 2, tmp_path)
    said = in_another_process(OPEN, spool.folder, schema, 1)
    part = spool.partition(1)
    assert part.rows > 0
    keys, about = [value.hex() for value in part.keys.values], ["table of ours", "refuse", part.matrix().tolist()]
    assert json.loads(said.stdout) == [["person_id"], keys, part.row_numbers.tolist(), list(part.own_ids), *about]
    assert spool.folder.exists()


FULL = """
import resource, sys, pyarrow as pa
from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Schema, number
from colonnade.tables.spool import gather
people = pa.table({"person_id": [str(i) for i in range(20000)], "x": [0.5] * 20000})
schema, plan = Schema({"x": number(0, 1)}), KeyPlan((Key("person_id"),))
found = gather(people, schema, plan, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for made in (lambda: gather(people, schema, plan, sys.argv[1]), lambda: found.split(lambda keys: [0] * len(keys), 1)):
    try:
        made()
    except DataError as error:
        print(error)
"""


def test_the_system_allows_no_larger_file(tmp_path: Path) -> None:
    done = in_another_process(FULL, tmp_path)
    assert done.stdout.count(f"cannot be written to {tmp_path}") == done.stdout.count("File too large") == 2
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


KILLED = """
import os, signal, sys, pyarrow as pa
from colonnade.tables import Key, KeyPlan, Schema, number
from colonnade.tables.spool import gather
people = pa.table({"person_id": ["a"], "x": [0.5]})
found = gather(people, Schema({"x": number(0, 1)}), KeyPlan((Key("person_id"),)), sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    in_another_process(KILLED, tmp_path)
    (left,) = tmp_path.iterdir()
    (tmp_path / "mine").mkdir()
    found = gather(in_texts(9, 1), SCHEMA, PLAN, tmp_path)
    assert not left.exists()
    assert (tmp_path / "mine").exists()
    found.remove()


def test_pandas_is_not_imported() -> None:
    probe = "import sys, colonnade.tables; sys.exit('pandas' in sys.modules or 'sklearn' in sys.modules)"
    assert in_another_process(probe).returncode == 0


FOREIGN = """
import _strptime, calendar, numpy as np, pyarrow as pa
from colonnade.tables import Key, KeyColumn
from colonnade.tables.parse import Place

class Foreign(_strptime.LocaleTime):  # what Python reads off a machine that is set to another language
    def __init__(self):
        super().__init__()
        self.a_month = ["", *(f"m{n:02}x" for n in range(1, 13))]
        self.a_weekday = [f"t{n}x" for n in range(7)]

_strptime.LocaleTime = Foreign
_strptime._TimeRE_cache = _strptime.TimeRE(Foreign())
place = Place("bank", "k", np.arange(1, 2), np.zeros(1, dtype=bool))
KeyColumn("k", "%a %d %b %Y")
print(Key("k", kind="date").normalise(pa.array(["Thu 29 Feb 2024"]), place, "%a %d %b %Y").to_pylist())
"""


def test_dates_do_not_depend_on_the_language_of_the_machine() -> None:
    ended = in_another_process(FOREIGN)
    assert ended.stdout == "['2024-02-29']\n", ended.stderr
