"""AIM and MST of private-pgm on the coded tables that `python -m research coded` writes; an environment of their own.

private-pgm (https://github.com/ryan112358/private-pgm) is not on PyPI in a usable form: clone it, make an environment
with ``pip install jax scipy networkx chex optax attrs "pandas<3"``, and run for each table

    python benchmarks/peers_synthetic.py --pgm PRIVATE-PGM --coded FOLDER adult aim 1.0 0 OUT.npz --size 1

`python -m research peers SCORES.csv OUT.npz ...` turns what comes out into lines of the comparison.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
DELTA = 1e-5
LARGEST_CLIQUE = 10_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("method", choices=["aim", "aim-label", "mst"])
    parser.add_argument("epsilon", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pgm", type=Path, required=True, help="a clone of private-pgm")
    parser.add_argument("--coded", type=Path, required=True, help="the folder that `python -m research coded` wrote")
    parser.add_argument("--size", type=float, default=80.0, help="AIM's largest model, in MB")
    parser.add_argument("--iters", type=int, default=1000, help="steps of estimation in each of AIM's rounds")
    parser.add_argument("--rounds", type=int, default=None, help="AIM's rounds, by default its own")
    return parser.parse_args()


def found(given: argparse.Namespace) -> tuple[types.ModuleType, types.ModuleType]:
    """pandas and mbi, with private-pgm's own modules importable."""
    sys.path[:0] = [str(given.pgm / "src"), str(given.pgm / "mechanisms")]
    # One of its modules imports a plotting library that it does not use here.
    sys.modules.setdefault("matplotlib", types.ModuleType("matplotlib"))
    sys.modules.setdefault("matplotlib.pyplot", types.ModuleType("matplotlib.pyplot"))
    import chex
    import jax
    import numpy

    # Its test for scalars was written for an older chex, whose union of types knew traced numbers.
    chex.Numeric = jax.Array | numpy.ndarray | numpy.generic | float | int
    import mbi
    import pandas

    mbi.MarkovRandomField.project = project
    # Mirror descent does not use this constant, and computing it takes a quarter of the time.
    mbi.marginal_loss.calculate_l2_lipschitz = lambda *_: None
    return pandas, mbi


def project(model: Any, attributes: Any) -> Any:
    """A marginal of the model: what private-pgm computes, without compiling a program for every set of columns."""
    import numpy as np
    from mbi import Factor, junction_tree

    asked = (attributes,) if isinstance(attributes, str) else tuple(attributes)
    if model.marginals.supports(asked):
        return model.marginals.project(asked)
    domain = model.domain
    parts = [(tuple(each.domain.attrs), np.asarray(each.values, float)) for each in model.potentials.arrays.values()]
    active = model.potentials.active_domain
    order, _ = junction_tree.greedy_order(active, [*model.potentials.cliques, asked], elim=active.invert(asked))

    def together(held: list[Any]) -> tuple[tuple[str, ...], Any]:
        names = tuple(dict.fromkeys(name for own, _ in held for name in own))
        total = np.zeros([domain[name] for name in names])
        for own, values in held:
            places = sorted(range(len(own)), key=lambda place: names.index(own[place]))
            shape = [domain[name] if name in own else 1 for name in names]
            total = total + values.transpose(places).reshape(shape)
        return names, total

    for name in order:
        touched = [part for part in parts if name in part[0]]
        if touched:
            names, total = together(touched)
            axis = names.index(name)
            top = total.max(axis=axis, keepdims=True)
            summed = np.log(np.exp(total - top).sum(axis=axis)) + top.squeeze(axis)
            rest = (names[:axis] + names[axis + 1 :], summed)
            parts = [*(part for part in parts if name not in part[0]), rest]
    names, total = together([*parts, *(((name,), np.zeros(domain[name])) for name in asked)])
    chances = np.exp(total - total.max())
    counts = chances / chances.sum() * float(model.total)
    return Factor(domain.project(asked), counts.transpose([names.index(name) for name in asked]))


def workload(columns: list[str], label: str, method: str) -> list[tuple[str, ...]]:
    """All pairs; with the label, every pair together with it too: what our own release holds."""
    pairs: list[tuple[str, ...]] = list(itertools.combinations(columns, 2))
    if method == "aim":
        return pairs
    others = [name for name in columns if name != label]
    return pairs + [(*pair, label) for pair in itertools.combinations(others, 2)]


def main() -> None:
    given = arguments()
    pandas, mbi = found(given)
    import numpy as np

    about = json.loads((given.coded / f"{given.data}.json").read_text())
    sizes = about["sizes"]
    frame = pandas.read_csv(given.coded / f"{given.data}.csv")
    data = mbi.Dataset(frame, mbi.Domain(tuple(sizes), tuple(sizes.values())))
    np.random.seed(given.seed)  # noqa: NPY002 - the peer draws from this generator
    start = time.perf_counter()
    if given.method == "mst":
        from mst import MST

        synthetic = MST(data, given.epsilon, DELTA)
    else:
        from aim import AIM

        cliques = workload(list(sizes), about["label"], given.method)
        asked = [(clique, 1.0) for clique in cliques if data.domain.size(clique) <= LARGEST_CLIQUE]
        mechanism = AIM(
            given.epsilon,
            DELTA,
            prng=np.random,
            rounds=given.rounds,
            max_model_size=given.size,
            max_iters=given.iters,
        )
        _, synthetic = mechanism.run(data, asked, num_synth_rows=len(frame))
    seconds = time.perf_counter() - start
    kept = {key: getattr(given, key) for key in ("data", "method", "epsilon", "seed", "size", "iters", "rounds")}
    codes = synthetic.df[list(sizes)].to_numpy()
    np.savez_compressed(given.out, codes=codes.astype(np.uint16), about=json.dumps(kept | {"seconds": seconds}))
    print(f"{given.out}: {len(codes)} rows in {seconds:.0f} s")


if __name__ == "__main__":
    main()
