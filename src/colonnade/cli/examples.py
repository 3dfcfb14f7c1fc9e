"""``colonnade example``: the examples that come with Colonnade, listed, and copied to a folder of one's own."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import Json, emit, say
from colonnade.errors import StorageError, StudyError

_INSTALLED = Path(__file__).parents[1] / "examples"
_IN_THE_REPOSITORY = Path(__file__).parents[3] / "examples"
_NEEDED = {"private-regression": ("three-organisations",)}
"""Examples that read the tables of another one, which must lie beside them."""
_KINDS = (".csv", ".md", ".py", ".toml")
"""What examples consist of. Somebody who ran one in a clone has more there: keys, ledgers, what an agent remembers."""
_MADE = ("__pycache__", "alignments", "certs", "coordinator", "runs")
"""Folders that are made by running an example."""
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\(\.\./\.\./([\w./-]+)(#[\w-]+)?\)")


@dataclass(frozen=True)
class InstalledExample:
    """One folder of examples."""

    name: str
    folder: Path

    @property
    def title(self) -> str:
        """What its page calls it."""
        return (self.folder / "README.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")

    def copy(self, to: Path) -> None:
        """Copy what belongs to it; its page is put in the words of a folder that is not in the repository."""
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{to.parent} cannot be made: {error.strerror} [SO004]") from None
        try:
            shutil.copytree(self.folder, to, ignore=_left_out, copy_function=shutil.copyfile)
            page = to / "README.md"
            page.write_text(rewrite_links(page.read_text(encoding="utf-8")), encoding="utf-8")
        except FileExistsError:
            raise _there_already(to) from None
        except (OSError, shutil.Error) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise StorageError(f"{to} cannot be written: {why or 'not all files could be copied'} [SO005]") from None


def examples() -> dict[str, InstalledExample]:
    """Every example by its name, in the wheel or, where Colonnade is installed from a clone, in that."""
    home = _INSTALLED if _INSTALLED.is_dir() else _IN_THE_REPOSITORY
    found = sorted(page.parent for page in home.glob("*/README.md"))
    if not found:
        raise StorageError(
            "no example was installed with Colonnade: install its wheel, or clone its repository [SO006]"
        )
    return {folder.name: InstalledExample(folder.name, folder) for folder in found}


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What in a folder is not part of an example, so that no key is copied anywhere."""
    paths = [Path(folder) / name for name in names]
    return {path.name for path in paths if path.name in _MADE or (not path.is_dir() and path.suffix not in _KINDS)}


def rewrite_links(page: str) -> str:
    """A page whose links into the repository are names of files there, since a copy does not have them beside it."""
    return _LINK.sub(r"\1 (`\2` in the repository)", page).replace("cd examples/", "cd ")


def example(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which one to copy; without it, all are named.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="The new folder.  [default: NAME]", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List the examples that come with Colonnade, or copy one to a new folder; nothing is overwritten."""
    if name is None:
        _list(json)
        return
    known = examples()
    if name not in known:
        raise StudyError(f"there is no example {name!r}: take one of {', '.join(known)} [ST030]")
    target = Path(name) if folder is None else folder
    if target.exists() or target.is_symlink():
        raise _there_already(target)
    beside = {other: target.absolute().parent / other for other in _NEEDED.get(name, ())}
    copied = {name: target} | {other: place for other, place in beside.items() if not place.exists()}
    if target.absolute() in beside.values():
        raise StudyError(
            f"{target} is where {' and '.join(beside)} must lie, which {name} needs: name another folder [ST031]"
        )
    for each, place in copied.items():
        known[each].copy(place)
    if json:
        emit({"example": name, "folder": str(target), "beside": {other: str(at) for other, at in beside.items()}})
        return
    say(f"copied {name} to {target}")
    for other, place in beside.items():
        say(f"{'copied' if other in copied else 'there already:'} {other} beside it, whose tables it reads: {place}")
    say(f"next: read {target / 'README.md'}")


def _list(json: bool) -> None:
    known = examples().values()
    if json:
        emit(
            {
                "examples": [
                    {"name": each.name, "title": each.title, "needs": list(_NEEDED.get(each.name, ()))}
                    for each in known
                ]
            }
        )
        return
    width = max(len(each.name) for each in known)
    say("\n".join(f"{each.name:<{width}}  {each.title}" for each in known))
    say("copy one: colonnade example NAME")


def _there_already(target: Path) -> StorageError:
    return StorageError(f"{target} is there already, and nothing is overwritten: name another folder [SO007]")
