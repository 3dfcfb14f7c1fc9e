"""One logistic regression of three organisations in one process, and its accuracy on people who were kept apart."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from colonnade import Federation, LogisticRegression, Party
from colonnade.tables.datasets import population


def main(rows: int = 20_000) -> float:
    """Fit on made-up people, and score others."""
    known = population(rows)
    with TemporaryDirectory() as folder:
        files = known.write(folder, overlap=0.9)  # each organisation lacks a tenth of them, and has its own order
        people = Federation(
            [Party(name, files[name][0], schema=known.schemas[name], id="person_id") for name in known.parties]
        )
        people.align(on="person_id", mode="helper")  # all in one process here; between organisations "ot" is safer
        print(people.alignment)  # noqa: T201
        model = LogisticRegression(epsilon=1.0, delta=1e-5, method="one-shot").fit(people, label=known.label)
    print(model.privacy_)  # noqa: T201
    for party, weights in model.coefficients().items():
        strongest = sorted(weights, key=lambda column: -abs(weights[column]))[:3]
        print(party, ", ".join(f"{column} {weights[column]:+.2f}" for column in strongest))  # noqa: T201
    others = population(rows // 5, seed=1)
    score = model.score(others.tables())
    print(f"accuracy on {others.rows:,} other people: {score:.3f}")  # noqa: T201
    return score


if __name__ == "__main__":
    main()
