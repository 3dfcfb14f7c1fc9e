"""``colonnade audit`` and its attacks on models, as a person types them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperGroup

from colonnade.audit import MOST_SAMPLES, SAMPLES
from colonnade.cli.output import Json

_GAMES = "games"


class _GamesByDefault(TyperGroup):
    """A group in which anything that is not the name of a command belongs to the games."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [_GAMES, *args])


audit_app = typer.Typer(
    cls=_GamesByDefault, help="Attack the promises, or a model.", rich_markup_mode=None, subcommand_metavar="..."
)

Model = Annotated[Path, typer.Argument(metavar="MODEL.json", help="The model under attack.")]
Members = Annotated[
    list[str],
    typer.Option("--members", metavar="[PARTY=]FILE", help="The people it was learned from; once for each party."),
]
Kept = Annotated[
    list[Path] | None,
    typer.Option("--kept", metavar="FILE", help="What a party keeps of the model, such as its encoder."),
]
Id = Annotated[str | None, typer.Option("--id", help="The column of ids.  [default: rows belong together by place]")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Choices of people and starting points follow from it.")]
Out = Annotated[Path, typer.Option("--out", help="Where to leave the page and the figures.")]
_OUT = Path("runs/audit")


@audit_app.command(_GAMES)
def games(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME | STUDY.toml]", help="What to attack; all, or nothing for a list.")
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1000, max=MOST_SAMPLES, help="Samples of each of the two tables.")
    ] = SAMPLES,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Repeat an audit.  [default: a new one]")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to leave audit.html and audit.json.")] = _OUT,
    json: Json = False,
) -> None:
    """Attack the promises from below: what can an observer show.

    To attack a model of your own, with people of your own: colonnade audit inversion, membership or labels MODEL.json;
    each has its own --help.
    """
    from colonnade.cli import attacks as command

    command.audit(name, samples, seed, out, json)


@audit_app.command("membership")
def membership(
    model: Model,
    members: Members,
    others: Annotated[
        list[str],
        typer.Option("--others", metavar="[PARTY=]FILE", help="People like them who were not; once for each party."),
    ],
    kept: Kept = None,
    id: Id = None,
    shadows: Annotated[
        int,
        typer.Option(
            "--shadows",
            min=8,
            max=4096,
            help="How many models to fit, all in all: at least 8, and more where members and others are not equally "
            "many, so that 3 know each person and 3 do not.",
        ),
    ] = 64,
    seen: Annotated[
        str | None,
        typer.Option("--seen", metavar="PARTY", help="The attacker has what this party tells of people, not scores."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="The attacker cannot fit models with the person it asks about.")
    ] = False,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Find out who was among the people that a model was learned from."""
    from colonnade.cli import attacks

    attacks.membership(model, members, others, kept or [], id, shadows, seen, offline, seed, out, json)


@audit_app.command("inversion")
def inversion(
    model: Model,
    party: Annotated[str, typer.Option("--party", help="Whose columns to recover.")],
    people: Annotated[
        list[str], typer.Option("--people", metavar="[PARTY=]FILE", help="Those who are attacked; once for each party.")
    ],
    auxiliary: Annotated[
        list[str],
        typer.Option("--auxiliary", metavar="[PARTY=]FILE", help="People the attacker knows; once for each party."),
    ],
    kept: Kept = None,
    id: Id = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="HxW[xC]", help="How columns make a picture, such as 28x14.")
    ] = None,
    decoder: Annotated[
        Literal["auto", "ridge", "mlp", "cnn"], typer.Option("--decoder", help="What learns to recover columns.")
    ] = "auto",
    scores: Annotated[
        bool, typer.Option("--scores", help="The attacker has exact scores of these people, and nothing else of them.")
    ] = False,
    releases: Annotated[
        int, typer.Option("--releases", min=1, help="Average embeddings that were told so often, and their noise.")
    ] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=1, max=10_000, help="Of training, at most.")] = 60,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Recover a party's columns from what leaves it."""
    from colonnade.cli import attacks

    attacks.inversion(
        model, party, people, auxiliary, kept or [], id, shape, decoder, scores, releases, epochs, seed, out, json
    )


@audit_app.command("labels")
def labels(
    model: Model,
    members: Members,
    kept: Kept = None,
    id: Id = None,
    known: Annotated[
        int, typer.Option("--known", min=2, max=1_000_000, help="How many people's labels the attacker knows.")
    ] = 50,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Guess labels from the slopes that the party with the label returns to others."""
    from colonnade.cli import attacks

    attacks.labels(model, members, kept or [], id, known, seed, out, json)
