"""One prime's field product on a GPU beside plain float64 ``dgemm`` of the same shape, and beside the CPU path.

Both take matrices that are on the device and take turns. Device time comes from events around each call, after a
warm-up, with the calls queued one after the other. Times are medians; the ratio is that of the medians or that of the
quickest calls, whichever is smaller. "From host memory" begins and ends with numpy arrays. Needs torch and numpy only:
where the rest of Colonnade's requirements are missing, its residue arithmetic is loaded by itself.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import time
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1] / "src" / "colonnade"
_SLICE = 5 * 2048 + 77
"""Rows on which the result is compared with the CPU path, bit for bit."""
_WARM_UP = 5


def load_residues_alone() -> None:
    """Residues and accelerator without what only the rest of the package needs."""
    for name, folder in (("colonnade", ROOT), ("colonnade.mpc", ROOT / "mpc")):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    sys.modules["colonnade.randomness"] = types.ModuleType("colonnade.randomness")
    sys.modules["colonnade.randomness"].Stream = object  # type: ignore[attr-defined]  # nothing is drawn here


if any(find_spec(name) is None for name in ("colonnade", "cryptography", "pydantic", "flint")):
    load_residues_alone()

from colonnade.mpc import accelerator  # noqa: E402
from colonnade.mpc.residues import PRIMES, ResidueSystem  # noqa: E402

PRIME = PRIMES[0]


@dataclass(frozen=True)
class Shape:
    rows: int
    columns: int
    repeats: int
    required: float | None = None
    """The part of plain speed that the field product must reach."""


SHAPES = (
    Shape(1_000_000, 1024, 15, 0.6),
    Shape(195_666, 117, 200, 0.3),
    Shape(801, 6844, 30),  # two of three parties' columns of 801 x 20,531
)


def device_times(torch: Any, calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds on the device, in order; the calls take turns, so that all meet the same clocks."""
    laps = [
        (name, torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for name in list(calls) * (repeats + _WARM_UP)
    ]
    for name, begun, ended in laps:
        begun.record()
        calls[name]()
        ended.record()
    torch.cuda.synchronize()
    counted = laps[_WARM_UP * len(calls) :]
    return {name: sorted(b.elapsed_time(e) for lap, b, e in counted if lap == name) for name in calls}


def share(times: dict[str, list[float]], name: str) -> float:
    """The part of plain speed: the smaller one of that of the medians and that of the quickest calls."""
    plain, other = times["plain"], times[name]
    return min(median(plain) / median(other), plain[0] / other[0])


def wall_time(call: Callable[[], Any], repeats: int, settle: Callable[[], None]) -> float:
    """Median milliseconds from the call until its result is there."""
    call()
    settle()
    laps = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        settle()
        laps.append(1e3 * (time.perf_counter() - begun))
    return median(laps)


def draw(torch: Any, device: Any, rows: int, columns: int, seed: int) -> Any:
    """Uniform residues on the device, for timing only."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    whole = torch.randint(0, PRIME, (1, rows, columns), generator=generator, device=device, dtype=torch.int32)
    return whole.double().sub_(PRIME // 2)


def on_cpu(system: ResidueSystem, operands: list[Any]) -> tuple[Any, float]:
    """The product as it is without a device, and its milliseconds."""
    os.environ[accelerator.SETTING] = "off"
    begun = time.perf_counter()
    product = system.inner(*operands)
    taken = 1e3 * (time.perf_counter() - begun)
    del os.environ[accelerator.SETTING]
    return product, taken


def measure_shape(found: accelerator.Accelerator, shape: Shape) -> dict[str, Any]:
    torch, system = found.torch, ResidueSystem((PRIME,))
    unfused = accelerator.Accelerator(torch, "cuda")
    x, y = (draw(torch, found.device, shape.rows, shape.columns, seed) for seed in (1, 2))
    plain, field = (lambda: x[0].T @ y[0]), (lambda: found.inner(x, y, system.primes))
    calls = {"plain": plain, "field": field, "unfused": lambda: unfused.inner(x, y, system.primes)}
    times = device_times(torch, calls, shape.repeats)
    settle = torch.cuda.synchronize
    left, right = found.fetch(x), found.fetch(y)
    part = [side[:, :_SLICE] for side in (left, right)]
    device_part = found.fetch(found.inner(x[:, :_SLICE], y[:, :_SLICE], system.primes))
    cpu_part, cpu = on_cpu(system, part)
    cpu *= shape.rows / part[0].shape[1]
    from_host = found.inner(left, right, system.primes)
    same = [device_part.tobytes() == cpu_part.tobytes(), from_host.tobytes() == found.fetch(field()).tobytes()]
    return asdict(shape) | {
        "plain_ms": median(times["plain"]),
        "field_ms": median(times["field"]),
        "unfused_ms": median(times["unfused"]),
        "quickest_ms": {name: laps[0] for name, laps in times.items()},
        "ratio": share(times, "field"),
        "unfused_ratio": share(times, "unfused"),
        "plain_wall_ms": wall_time(plain, shape.repeats, settle),
        "field_wall_ms": wall_time(field, shape.repeats, settle),
        "host_ms": wall_time(lambda: found.inner(left, right, system.primes), 3, settle),
        "cpu_ms": cpu,
        "teraflops": 2e-9 * shape.rows * shape.columns**2 / median(times["field"]),
        "equal": all(same),
    }


def measure() -> dict[str, Any]:
    """All figures."""
    begun = time.perf_counter()
    found = accelerator.find_device()
    if found is None or found.device.type == "cpu":
        raise SystemExit("there is no GPU with fast float64 here, or no torch that can use it")
    return {
        "device": found.torch.cuda.get_device_name(),
        "torch": found.torch.__version__,
        "fused": found.has_kernel,
        "find_s": time.perf_counter() - begun,
        "shapes": [measure_shape(found, shape) for shape in SHAPES],
    }


def show(figures: dict[str, Any]) -> None:
    """The figures as a markdown table."""
    kernel = "reductions in one Triton kernel" if figures["fused"] else "reductions by torch"
    print(f"{figures['device']}, torch {figures['torch']}, {kernel}; found and checked in {figures['find_s']:.1f} s\n")
    print("| shape | plain dgemm | field product | of plain speed | required | reductions by torch ", end="")
    print("| one call, waited for: plain, field | from host memory | CPU path | same bits |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in figures["shapes"]:
        need = row["required"]
        verdict = "" if need is None else f"{'PASS' if row['ratio'] >= need else 'FAIL'}: {need:.0%}"
        cells = (
            f"{row['rows']:,} x {row['columns']:,}",
            f"{row['plain_ms']:.3f} ms",
            f"{row['field_ms']:.3f} ms ({row['teraflops']:.0f} TFLOP/s)",
            f"**{row['ratio']:.0%}**",
            verdict,
            f"{row['unfused_ratio']:.0%}",
            f"{row['plain_wall_ms']:.3f}, {row['field_wall_ms']:.3f} ms",
            f"{row['host_ms']:.0f} ms",
            f"{row['cpu_ms']:.0f} ms",
            "yes" if row["equal"] else "NO",
        )
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print every figure")
    given = parser.parse_args()
    figures = measure()
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)
    if not all(row["equal"] for row in figures["shapes"]):
        raise SystemExit("the device and the CPU disagree")


if __name__ == "__main__":
    main()
