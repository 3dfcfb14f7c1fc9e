"""What a study about new people needs: the public model, and each party's own weights if parties keep them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.models.scorer import features
from colonnade.tables import Schema

if TYPE_CHECKING:
    from colonnade.models.base import Estimator
    from colonnade.models.planner import Planner


def public_model(path: Path, kind: type[Planner], study: Path) -> Estimator:
    """The model in a file; an error if studies of this kind cannot use it."""
    from colonnade.models.base import Estimator

    found = Estimator.load(path)
    if (why := kind.why_not_about(found)) is not None:
        raise StudyError(f"{study}: task.model - {path} {why} [ST551]")
    return found


def digest_of(path: Path) -> str:
    """SHA-256 of a file, such as that of a public model."""
    try:
        return hashlib.sha256(reading.read_bytes(path, reading.LEARNED)).hexdigest()
    except reading.Unreadable as error:
        raise StudyError(f"{path} cannot be read: {error} [ST552]") from None


def without_label(model: Any, party: str, schema: Schema) -> Schema:
    """A schema without the columns that the model knows and has no weights for: new people have no label."""
    used, known = features(model, party), model.schemas_.get(party, schema).names
    unused = [name for name in schema.names if name in known and name not in used]
    return schema.without(unused) if used and unused else schema


def bring(model: Estimator, party: str, kept: Path | None, config: Path) -> None:
    """Give a model what this party kept of an earlier study."""
    if model.brings is None:
        return
    if kept is None:
        raise StudyError(
            f"{config.name} of {party} names no kept {model.brings}, which this study is about: add "
            f'kept = "PATH", the {model.kept_file} that {party} wrote when the model was fitted [ST553]'
        )
    model.bring(kept, party)
    if os.name == "posix" and kept.stat().st_mode & 0o077:
        raise StudyError(
            f"{kept} can be read by others, and holds private {model.brings}: run `chmod 600 {kept}` [ST554]"
        )


def check_folder(model: Estimator, kept: Path | None, out: Path) -> None:
    """Raise an error if the run directory holds the kept weights: a run moves the files of an earlier one away."""
    if model.brings is not None and kept is not None and kept.parent.resolve() == out.resolve():
        raise StudyError(
            f"the kept {model.brings} lie in {out}, whose files a new run moves away: choose another --out [ST555]"
        )
