"""The figures and tables of the paper as jobs that need nothing of each other, so that many can run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.inversion import Inversion, InversionQuality
from colonnade.audit.attacks.membership import LabelGuesses, Membership
from research.afe import cases, labels, ours, own, published, settings, threats
from research.afe.cases import Case
from research.afe.published import Mode
from research.afe.threats import Seen, Way
from research.reproduce.chance import stream
from research.reproduce.options import Options
from research.reproduce.results import ALONE as NOT_SENT, AS_PUBLISHED, NONE, PROVEN, PUBLISHED, Group, Row

Vector = NDArray[np.float64]
CASES: dict[str, Callable[[Options], Case]] = {"Adult": cases.adult, "MNIST": cases.mnist, "CIFAR-10": cases.cifar}
CENTRALISED = "centralised"
SHOWN_EPOCHS = (1, 2, 5, 10, 15, 20)
CLEAR, NOISED = "Colonnade, embeddings told (AFE-R), new people in the clear", "the same, new people noised alike"
COMMITTEE = "Colonnade, committee's head"
TOGETHER, ALONE = f"{COMMITTEE}, for analyst", "the label's party alone, without noise"
OWN = "the label's party has columns, delta 1e-05"
HAS_COLUMNS = ("Adult", "MNIST")
"""Where a party with the label that has columns is compared with what it learns alone, and labels are attacked."""
ACCURACY = "test accuracy"
GAIN = "what is gained, seed by seed"
ANSWER = "not about training"
"""The promise is about people who were learned from; an answer about somebody is asked for, and has none."""
ABLATION = (Mode.VANILLA, Mode.ADJUSTED, Mode.RESCALED, Mode.BOTH)
ASKED = (1.0, 8.0)
"""The epsilons at which something is asked of a committee's head."""

TABLE_1 = {
    "Adult": (0.5152, 0.5103, 0.5112),
    "MNIST": (0.6236, 0.5175, 0.5319),
    "CIFAR-10": (0.6575, 0.5232, 0.5465),
}
TABLE_2 = {
    "Adult": (0.7716, 0.7770, 0.7902, 0.7931),
    "MNIST": (0.9048, 0.9251, 0.9512, 0.9653),
    "CIFAR-10": (0.4883, 0.4953, 0.5458, 0.5506),
}


@dataclass(frozen=True)
class Sizes:
    """How much of the data each part takes, and how long."""

    curve_rows: int
    epochs: int
    members: int
    shadows: int
    attack_epochs: int
    inverted: int
    shown: int
    decoding: int

    @classmethod
    def of(cls, options: Options) -> Sizes:
        """Seconds in all, minutes, or the paper's own sizes."""
        if options.quick:
            return cls(300, 2, 40, 8, 1, 100, 10, 1)
        return cls(60_000 if options.full else 20_000, settings.EPOCHS, 1_000, 12, 30, 5_000, 200, 40)


@dataclass(frozen=True)
class Job:
    """Something to measure, and under which name."""

    kind: str
    case: str
    what: str
    seed: int
    epsilon: float = 0.0


def jobs(options: Options) -> list[Job]:
    """Everything, the longest first; what varies little or takes long is done less often."""
    found = [Job("inversion", "MNIST", what, options.seed) for what in Seen]
    found += [Job("membership", case, way, options.seed) for case in CASES for way in Way]
    for case in CASES:
        rarely = case == "CIFAR-10"
        curves = {"Adult": options.runs, "MNIST": 2, "CIFAR-10": 1}[case]
        found += [
            Job("curve", case, what, seed)
            for what in (CENTRALISED, *Mode)
            for seed in _seeds(options, curves if what in ABLATION else min(curves, 2))
        ]
        told = _seeds(options, 2 if rarely else options.runs)
        found += [Job("told", case, CLEAR, seed, settings.OURS_EPSILON) for seed in told]
        for who in ("analyst", "everyone"):
            for epsilon in settings.EPSILONS:
                often = options.runs if epsilon in ASKED and not rarely else 1
                found += [Job("committee", case, who, seed, epsilon) for seed in _seeds(options, often)]
    for case in HAS_COLUMNS:
        found += [Job("own", case, TOGETHER, seed, 1.0) for seed in _seeds(options, options.runs)]
        found += [Job("labels", case, what, options.seed) for what in labels.WAYS]
    return found


def _seeds(options: Options, most: int) -> range:
    return range(options.seed, options.seed + min(options.runs, most))


def measured(options: Options) -> dict[Job, Any]:
    """What every job found; several at once where several workers are asked for."""
    todo = jobs(options)
    found: dict[Job, Any] = {}
    quiet = Options(options.runs, options.quick, options.full, options.seed, options.folder)
    if options.workers == 1:
        for job in todo:
            options.progress("jobs", len(found), len(todo))
            found[job] = done(job, quiet)
        return found
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        results = pool.map(done, todo, [quiet] * len(todo))
        for job, result in zip(todo, results, strict=True):
            found[job] = result
            options.progress("jobs", len(found), len(todo))
    return found


def done(job: Job, options: Options) -> Any:
    """One job's result."""
    _one_thread()
    if job.kind == "own":
        return own.compared(cases.parted(job.case, options), job.epsilon, job.seed)
    sizes, case = Sizes.of(options), _case(job.case, options)
    if job.kind == "labels":
        return labels.attacked(job.what, case, job.seed, min(labels.ROWS, case.train.rows))
    if job.kind == "curve":
        some = case.fewer(min(case.train.rows, sizes.curve_rows))
        if job.what == CENTRALISED:
            return published.centralised(some, job.seed, epochs=sizes.epochs)
        return published.by_epoch(some, Mode(job.what), job.seed, epochs=sizes.epochs)
    if job.kind == "told":
        model = ours.told(case, job.seed, epsilon=job.epsilon)
        noised = ours.noised_scores(model, case.test, stream(job.seed, "new"))
        return published.right(ours.scores(model, case.test), case.test), published.right(noised, case.test)
    if job.kind == "committee":
        epsilon = job.epsilon if job.what == "everyone" else {"analyst": job.epsilon}
        return published.right(ours.scores(ours.committee(case, epsilon, job.seed), case.test), case.test)
    few = case.fewer(min(case.train.rows, 2 * max(sizes.members, sizes.inverted)))
    if job.kind == "membership":
        return threats.membership(Way(job.what), few, sizes.members, sizes.shadows, sizes.attack_epochs, job.seed)
    return threats.inversion(
        Seen(job.what),
        few,
        sizes.inverted,
        sizes.shown,
        max(1, sizes.attack_epochs // 2),
        job.seed,
        decoding=sizes.decoding,
    )


@lru_cache(maxsize=3)
def _case(name: str, options: Options) -> Case:
    return CASES[name](options)


def _one_thread() -> None:
    """Jobs run side by side; threads of one of them would stand in the others' way."""
    import torch

    torch.set_num_threads(1)


# --- rows


def rows(found: dict[Job, Any], options: Options) -> Iterator[Row]:
    """Everything, figure by figure."""
    yield from _curves(found, options)
    yield from _table_1(found)
    yield from _table_2(found, options)
    yield from _figure_10(found)
    yield from _labels(found)
    yield from _ours(found)
    yield from _own(found)


def _of(found: dict[Job, Any], kind: str, case: str, what: str, epsilon: float = 0.0) -> list[Any]:
    return [
        result
        for job, result in found.items()
        if (job.kind, job.case, job.what, job.epsilon) == (kind, case, what, epsilon)
    ]


def _promise(what: str) -> str:
    return NONE if what in (CENTRALISED, Mode.UNPROTECTED) else AS_PUBLISHED


def _curves(found: dict[Job, Any], options: Options) -> Iterator[Row]:
    sizes = Sizes.of(options)
    for name in CASES:
        group = Group("AFE Fig. 9", name, "", "epoch", ACCURACY)
        for what in (CENTRALISED, Mode.UNPROTECTED, Mode.VANILLA, Mode.BOTH):
            curves = np.array(_of(found, "curve", name, what))
            for epoch in SHOWN_EPOCHS:
                if epoch <= sizes.epochs:
                    yield group.row(epoch, str(what), _promise(what), curves[:, epoch - 1])


def _table_1(found: dict[Job, Any]) -> Iterator[Row]:
    for name in CASES:
        for measure in ("membership attack, balanced accuracy", "members found with 0.1 % false alarms"):
            group = Group("AFE Table 1", name, "", "models attacked", measure)
            for way in Way:
                attack: Membership = _of(found, "membership", name, way)[0]
                promise = PROVEN if way in threats.OURS else _promise(way)
                value = attack.alike.accuracy if measure.startswith("membership") else attack.alike.hits
                yield group.known(attack.shadows, str(way), promise, value, runs=attack.shadows)
            if measure.startswith("membership"):
                for way, value in zip((Way.UNPROTECTED, Way.VANILLA, Way.PUBLISHED), TABLE_1[name], strict=True):
                    shadows = _of(found, "membership", name, way)[0].shadows
                    yield group.known(shadows, f"paper: {way}", PUBLISHED, value)


def _table_2(found: dict[Job, Any], options: Options) -> Iterator[Row]:
    epochs = Sizes.of(options).epochs
    for name in CASES:
        chosen = settings.PUBLISHED[name]
        said = f"{chosen.per_release:g} a release, delta {settings.DELTA:g}"
        group = Group("AFE Table 2", name, said, "epochs", ACCURACY)
        for mode in ABLATION:
            yield group.row(epochs, str(mode), AS_PUBLISHED, _last(found, name, mode))
        for mode, value in zip(ABLATION, TABLE_2[name], strict=True):
            yield group.known(epochs, f"paper: {mode}", PUBLISHED, value)
        gains = Group("AFE Table 2", name, said, "epochs", GAIN)
        for before, after in pairwise(ABLATION):
            gain = np.round(_last(found, name, after) - _last(found, name, before), 9)
            yield gains.row(epochs, f"{after} less {before}", AS_PUBLISHED, gain)
        honest = Group("AFE Table 2", name, said, "epochs", "epsilon")
        yield honest.known(1, "as the paper counts: one release", PUBLISHED, chosen.per_release)
        for count in (1, epochs):
            frozen = frozen_epsilon(name, count)
            yield honest.known(count, "all releases of frozen encoders", "a figure, no promise", frozen)


def _last(found: dict[Job, Any], name: str, mode: Mode) -> Vector:
    """The mean accuracy of the last three epochs, seed by seed."""
    return np.array([float(np.mean(curve[-3:])) for curve in _of(found, "curve", name, mode)])


def frozen_epsilon(name: str, epochs: int) -> float:
    """What all releases of one person's embedding come to, if nothing but their noise depended on people."""
    widths = {"one": settings.PUBLISHED[name].width, "other": settings.PUBLISHED[name].width}
    return published.task_of(name, 2, Mode.VANILLA, widths, 2, epochs).frozen_epsilon(settings.DELTA)


def _figure_10(found: dict[Job, Any]) -> Iterator[Row]:
    attacks: dict[Seen, Inversion] = {what: _of(found, "inversion", "MNIST", what)[0] for what in Seen}
    measures: dict[str, Callable[[InversionQuality], float]] = {
        "structural similarity of what was recovered": lambda quality: quality.ssim or 0.0,
        "signal to noise of it, in dB": lambda quality: quality.psnr,
        "people recognised by it": lambda quality: quality.recognised,
    }
    for measure, value in measures.items():
        group = Group("AFE Fig. 10", "MNIST", "left halves", "people attacked", measure)
        for what, one in attacks.items():
            promise = PROVEN if threats.BY[what] in threats.OURS else _promise(threats.BY[what])
            if what in (Seen.CLASS, Seen.SCORES):
                promise = ANSWER
            yield group.known(len(one.truth), str(what), promise, value(one.found))
        blind = attacks[Seen.TOLD]
        yield group.known(len(blind.truth), "nothing seen: the mean of others", ANSWER, value(blind.blind))


def _labels(found: dict[Job, Any]) -> Iterator[Row]:
    for name in HAS_COLUMNS:
        group = Group("Labels", name, "", "people attacked", "labels guessed by the first passive party")
        attacks: dict[str, LabelGuesses] = {what: _of(found, "labels", name, what)[0] for what in labels.WAYS}
        for what, one in attacks.items():
            promise = AS_PUBLISHED if one.most is None else PROVEN
            promise = NONE if what == Mode.UNPROTECTED or what == labels.OPEN else promise
            yield group.known(one.people, what, promise, one.accuracy)
            if one.most is not None:
                yield group.known(one.people, f"the most that {what.rsplit(', ', 1)[1]} leave", PROVEN, one.most)
        yield group.known(one.people, labels.NOTHING, PROVEN, one.base_rate)


def _ours(found: dict[Job, Any]) -> Iterator[Row]:
    for name in CASES:
        group = Group("Ours", name, "delta 1e-05", "epsilon", ACCURACY)
        told = _of(found, "told", name, CLEAR, settings.OURS_EPSILON)
        for place, method in enumerate((CLEAR, NOISED)):
            yield group.row(settings.OURS_EPSILON, method, PROVEN, [pair[place] for pair in told])
        for who in ("analyst", "everyone"):
            for epsilon in settings.EPSILONS:
                draws = _of(found, "committee", name, who, epsilon)
                yield group.row(epsilon, f"{COMMITTEE}, for {who}", PROVEN, draws)


def _own(found: dict[Job, Any]) -> Iterator[Row]:
    for name in HAS_COLUMNS:
        group = Group("Ours", name, OWN, "epsilon", ACCURACY)
        pairs = _of(found, "own", name, TOGETHER, 1.0)
        for place, (method, promise) in enumerate(((TOGETHER, PROVEN), (ALONE, NOT_SENT))):
            yield group.row(1.0, method, promise, [pair[place] for pair in pairs])


def pictures(found: dict[Job, Any], count: int = 5) -> Sequence[tuple[str, Any]]:
    """Rows of pictures: the true ones, and what the decoder made of what it saw."""
    attacks: dict[Seen, Inversion] = {what: _of(found, "inversion", "MNIST", what)[0] for what in Seen}
    true = attacks[Seen.TOLD]
    shown = {"true": true.truth} | {str(what): one.guesses for what, one in attacks.items()}
    return [(name, rows[:count].reshape(-1, *true.shape)) for name, rows in shown.items()]
