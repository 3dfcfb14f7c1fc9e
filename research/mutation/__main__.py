"""``python -m research.mutation``: choose mutants, see which tests reach them, run them, compare two runs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from research.mutation.comparing import changes, told
from research.mutation.moved import Names, renames, translated
from research.mutation.mutants import Tree, read_mutants, write_mutants
from research.mutation.probing import PROBE, instrument
from research.mutation.reach import Reach, choose
from research.mutation.running import Copy, read_results, run_all, totals
from research.mutation.sampling import SEED, sample

HERE = Path(__file__).parent
MUTANTS, REACH, BASELINE = HERE / "mutants.json", HERE / "reach.json.gz", HERE / "baseline.csv"
RESULTS = ("killed", "timeout", "survived", "unreached", "gone")
SUITE = (
    "-m",
    "not slow",
    *["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "no:cacheprovider"],
)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _sample(words: argparse.Namespace) -> None:
    mutants = sample(words.root / "src", words.count, words.seed)
    write_mutants(words.mutants, mutants)
    say(f"{len(mutants)} mutants in {len({mutant.folder for mutant in mutants})} folders")


def _probe(words: argparse.Namespace) -> None:
    mutants, notes = read_mutants(words.mutants), words.scratch / "notes"
    if not words.noted:
        copy = Copy(words.root, words.scratch / "probed")
        for gone in instrument(copy.tree / "src", mutants, notes):
            say(f"gone: {gone}")
        path = os.pathsep.join(map(str, (copy.tree / "src", copy.tree)))
        command = [sys.executable, "-m", "pytest", "-p", PROBE, *SUITE]
        subprocess.run(command, check=False, cwd=copy.tree, env=os.environ | {"PYTHONPATH": path})  # noqa: S603
    reach = choose(mutants, notes)
    reach.write(words.reach)
    without = sum(not tests for tests in reach.tests.values())
    say(f"{len(reach.seconds)} tests reach {len(reach.tests) - without} mutants; none reaches {without}")


def _run(words: argparse.Namespace) -> None:
    mutants, reach = read_mutants(words.mutants), Reach.read(words.reach)
    if words.only:
        mutants = [mutant for mutant in mutants if mutant.id in words.only]
    moves = renames(words.root, words.renames) if words.renames else {}
    reach, lost = translated(reach, Names(words.root, moves))
    for test in lost:
        say(f"no such test any more: {test}")
    results = run_all(words.root, mutants, reach, words.out, words.scratch, words.workers, say)
    counts = totals(mutants, results)
    for folder, count in sorted(counts.items()):
        say(f"{folder}: " + ", ".join(f"{count[name]} {name}" for name in RESULTS if count[name]))
    whole = sum(counts.values(), Counter())
    say(f"all {len(results)}: " + ", ".join(f"{whole[name]} {name}" for name in RESULTS))


def _locate(words: argparse.Namespace) -> None:
    tree, ways = Tree(words.root / "src"), Counter[str]()
    for mutant in read_mutants(words.mutants):
        place = tree.locate(mutant)
        ways[place.how if place else "gone"] += 1
        if place is None or place.function.module != mutant.module:
            now = place.function.module if place else "gone"
            say(f"{mutant.id} {mutant.module} {mutant.qualname}: {now}")
    say(", ".join(f"{count} {way}" for way, count in ways.items()))


def _compare(words: argparse.Namespace) -> None:
    after = read_results(words.after)
    for line in told(changes(read_results(words.before), after), read_mutants(words.mutants), after):
        say(line)


def main() -> None:
    parser = argparse.ArgumentParser("python -m research.mutation", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="the repository whose source is meant")
    parser.add_argument("--mutants", type=Path, default=MUTANTS)
    parser.add_argument("--reach", type=Path, default=REACH)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/mutation"), help="private copies go here")  # noqa: S108
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("sample", help="choose mutants (needs cosmic-ray)")
    one.add_argument("--count", type=int, default=660)
    one.add_argument("--seed", type=int, default=SEED)
    one.set_defaults(command=_sample)
    one = commands.add_parser("probe", help="run the suite once: which tests reach which mutants")
    one.add_argument("--noted", action="store_true", help="the suite has run: choose from the notes in the scratch")
    one.set_defaults(command=_probe)
    one = commands.add_parser("run", help="run every mutant that the results do not have yet")
    one.add_argument("--out", type=Path, required=True, help="the results, a CSV file")
    one.add_argument("--renames", metavar="REVISION", help="tests have moved since this revision")
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--only", nargs="*", metavar="ID")
    one.set_defaults(command=_run)
    one = commands.add_parser("locate", help="where the mutants are now")
    one.set_defaults(command=_locate)
    one = commands.add_parser("compare", help="two results of the same mutants")
    one.add_argument("before", type=Path)
    one.add_argument("after", type=Path)
    one.set_defaults(command=_compare)
    words = parser.parse_args()
    words.root, words.scratch = words.root.resolve(), words.scratch.resolve()
    words.command(words)


if __name__ == "__main__":
    main()
