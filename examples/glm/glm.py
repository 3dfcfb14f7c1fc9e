"""Three organisations learn who will default over noised messages; each keeps its own weights."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from colonnade import GLM, Federation, Party
from colonnade.tables.datasets import population


def main(rows: int = 20_000, epsilon: float = 8.0) -> float:
    """Fit on made-up people, then let the bank ask about others."""
    known = population(rows)
    with TemporaryDirectory() as folder:
        files = known.write(folder, overlap=0.9)  # each organisation lacks a tenth of them, and has its own order
        people = Federation(
            [Party(name, files[name][0], schema=known.schemas[name], id="person_id") for name in known.parties]
        )
        people.align(on="person_id", mode="helper")  # all in one process here; between organisations "ot" is safer
        model = GLM(family="logistic", label=known.label, epsilon=epsilon, delta=1e-5).fit(people)
    print(model.guarantees_)  # noqa: T201 - what each observer can learn from what
    for party, kept in model.kept_.items():
        print(f"{party} keeps {len(kept.weights)} weights")  # noqa: T201
    others = population(rows // 5, seed=1)
    new = Federation(
        [Party(name, others.arrow[name], schema=others.schemas[name], id="person_id") for name in others.parties]
    )
    score = model.score(new)  # what the bank would reach by asking; the question is played, and not charged
    print(f"accuracy on {others.rows:,} other people: {score:.3f}")  # noqa: T201
    best = model.score(new, exact=True)  # by all weights, which only this process holds, and no organisation
    print(f"and by all weights in one place, as nobody can: {best:.3f}")  # noqa: T201
    answers = model.joint_scores(new, epsilon=epsilon)  # what the bank would really get, noise and all
    right = (answers.predictions == model.true_of(new)).mean()
    alone = (answers.own_predictions == model.true_of(new)).mean()
    print(f"accuracy of the scores that the bank receives: {right:.3f}, for another epsilon {epsilon:g}")  # noqa: T201
    print(f"and of its own columns alone: {alone:.3f}")  # noqa: T201
    return score


if __name__ == "__main__":
    main()
