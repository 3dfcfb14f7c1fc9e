"""The torch path beside the CPU path, bit for bit: on a GPU where there is one, else on CPU tensors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError
from colonnade.mpc import accelerator
from colonnade.mpc.accelerator import LOOK, SETTING, Accelerator, pays
from colonnade.mpc.residues import PRIMES, ResidueSystem
from colonnade.mpc.shamir import combine, weights

Array = NDArray[np.float64]

HAS_TORCH = importlib.util.find_spec("torch") is not None
with_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed here")
systems = st.integers(1, 3).map(lambda count: ResidueSystem(PRIMES[:count]))
seeds = st.integers(0, 2**31)


@pytest.fixture(scope="module", params=["cpu", "auto"])
def device(request: pytest.FixtureRequest) -> Accelerator:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, request.param)
        found = accelerator.find()
    if found is None:
        pytest.skip("there is no GPU with fast float64 here" if HAS_TORCH else "torch is not installed here")
    return found


def extreme(system: ResidueSystem, shape: tuple[int, ...], seed: int) -> Array:
    """Residues of which most have the largest magnitude, some are zero, and some are anything."""
    rng = np.random.default_rng(seed)

    def row(prime: int) -> Array:
        half = prime // 2
        worst = rng.choice([-half, half, half - 1, 0], shape, p=[0.3, 0.4, 0.2, 0.1])
        return np.where(rng.random(shape) < 0.8, worst, rng.integers(-half, half, shape, endpoint=True)).astype(float)

    return np.stack([row(prime) for prime in system.primes])


def same(got: Array, want: Array) -> bool:
    """Equal in every bit, the sign of zero too."""
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@settings(deadline=None)
@given(systems, st.integers(0, 9000), st.integers(1, 5), st.integers(1, 5), seeds)
def test_inner_products_have_the_bits_of_the_cpu_path(
    device: Accelerator, system: ResidueSystem, rows: int, a: int, b: int, seed: int
) -> None:
    left, right = extreme(system, (rows, a), seed), extreme(system, (rows, b), seed + 1)
    want = system.inner(left, right)
    assert same(device.inner(left, right, system.primes), want)
    placed = device.inner(device.place(left), device.place(right), system.primes)
    assert same(device.fetch(placed), want)
    assert same(device.fetch(device.inner(device.place(left), right, system.primes)), want)


@settings(deadline=None)
@given(systems, st.integers(1, 4), st.integers(1, 5000), st.integers(1, 4), seeds)
def test_matrix_products_have_the_bits_of_the_cpu_path(
    device: Accelerator, system: ResidueSystem, rows: int, a: int, b: int, seed: int
) -> None:
    left, right = extreme(system, (rows, a), seed), extreme(system, (a, b), seed + 1)
    want = system.inner(left.transpose(0, 2, 1), right)
    assert same(device.matmul(left, right, system.primes), want)
    assert same(device.fetch(device.matmul(device.place(left), device.place(right), system.primes)), want)


@pytest.mark.parametrize("rows", [2047, 2048, 2049, 3 * 2048, 20_001])
def test_the_worst_product_is_exact_in_every_batch(
    device: Accelerator, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = ResidueSystem(PRIMES[:2])
    left = np.stack([np.full((rows, 3), p // 2, dtype=float) for p in system.primes])
    want = system.inner(left, -left)
    assert want[0, 0, 0] == (-rows * (PRIMES[0] // 2) ** 2 + PRIMES[0] // 2) % PRIMES[0] - PRIMES[0] // 2
    assert same(device.inner(left, -left, system.primes), want)
    monkeypatch.setattr(accelerator, "_BATCH", 2 * 9)  # two blocks at a time
    monkeypatch.setattr(accelerator, "_SLAB", 3 * 5000)  # 5000 rows at a time from the host
    assert same(device.inner(left, -left, system.primes), want)
    assert same(device.fetch(device.inner(device.place(left), device.place(-left), system.primes)), want)


@settings(deadline=None)
@given(st.lists(st.integers(-(2**53 - 2**22), 2**53 - 2**22), min_size=1, max_size=30))
def test_reductions_have_the_bits_of_the_cpu_path(device: Accelerator, numbers: list[int]) -> None:
    system = ResidueSystem(PRIMES[:3])
    values = np.tile(np.array(numbers, dtype=float), (3, 1))
    got = device.fetch(device.reduce(device.place(values.copy()), system.primes))
    assert same(got, system.reduce(values, passes=2))


def test_a_view_is_reduced_in_place(device: Accelerator) -> None:
    system = ResidueSystem(PRIMES[:2])
    values = np.arange(2 * 6, dtype=float).reshape(2, 2, 3) * 2.0**40
    placed = device.place(values)
    device.reduce(placed.swapaxes(1, 2), system.primes)
    assert same(device.fetch(placed), system.reduce(values))


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_integers_are_split_alike(device: Accelerator, numbers: list[int]) -> None:
    system, values = ResidueSystem(PRIMES[:4]), np.array(numbers, dtype=np.int64)
    assert same(device.fetch(device.split(values, system.primes)), system.split(values))


@settings(deadline=None)
@given(st.lists(st.integers(-(2**53), 2**53), min_size=0, max_size=20), st.booleans())
def test_whole_floats_are_split_alike(device: Accelerator, numbers: list[int], small: bool) -> None:
    system = ResidueSystem(PRIMES[:2])
    values = np.array([n % 1000 if small else n for n in numbers], dtype=float)
    assert same(device.fetch(device.split(values, system.primes)), np.array(system.split(values)))


@settings(deadline=None)
@given(systems, st.integers(1, 7), seeds)
def test_lagrange_combinations_have_the_bits_of_the_cpu_path(
    device: Accelerator, system: ResidueSystem, count: int, seed: int
) -> None:
    points = tuple(range(1, count + 1))
    values = [extreme(system, (7, 3), seed + point) for point in points]
    factors = [weights(prime, points, 0) for prime in system.primes]
    got = device.combine([values[0], *map(device.place, values[1:])], factors, system.primes)
    assert same(device.fetch(got), combine(system, values, points, 0))


@pytest.mark.parametrize(
    "form",
    [np.asfortranarray, lambda x: x[::2, 1:], lambda x: np.broadcast_to(x[0], x.shape), lambda x: x[:0]],
    ids=["columns first", "strided", "broadcast", "empty"],
)
def test_arrays_come_back_as_they_were_placed(device: Accelerator, form: Callable[[Array], Array]) -> None:
    array = form(np.arange(35.0).reshape(5, 7))
    array.flags.writeable = False
    assert same(device.fetch(device.place(array)), array.copy(order="C"))


@pytest.mark.parametrize("count", [2**21 - 1, 2**22 + 3])
def test_large_arrays_come_back_as_they_were_placed(device: Accelerator, count: int) -> None:
    array = np.arange(count, dtype=np.int64)
    assert np.array_equal(device.fetch(device.place(array)), array)


def test_a_device_that_computes_wrongly_is_found_out(device: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.is_exact()
    product = device.torch.bmm

    def with_fewer_bits(left: object, right: object, *, out: object) -> object:
        return product(left, right, out=out).copy_(product(left, right).float())

    monkeypatch.setattr(device.torch, "bmm", with_fewer_bits)
    assert not device.is_exact()


def test_only_products_that_pay_for_the_way_leave_the_cpu() -> None:
    assert pays((4, 195_666, 117), (4, 195_666, 117))
    assert pays((4, 801, 6844), (4, 801, 13_687))
    assert not pays((4, 8192, 33), (4, 8192, 67))
    assert not pays((4, 20_000_000, 10), (4, 20_000_000, 10)), "moving so many numbers takes longer"
    assert not pays((4, 100, 100), (4, 100, 100))


@with_torch
def test_a_large_product_is_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "cpu")
    system = ResidueSystem(PRIMES[:1])
    left = extreme(system, (9000, 128), 1)
    got = accelerator.offload(left, left, system.primes)
    monkeypatch.setenv(SETTING, "off")
    assert accelerator.offload(left, left, system.primes) is None
    assert got is not None
    assert same(got, system.inner(left, left))


def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "gpu")
    with pytest.raises(ColonnadeError, match="auto, cpu and off"):
        accelerator.find()


def test_nobody_looks_for_a_device_before_as_much_work_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_past", accelerator._Past())
    monkeypatch.setenv(SETTING, "auto")
    assert not accelerator._worth_looking(LOOK - 2)
    assert not accelerator._worth_looking(1)
    assert accelerator._worth_looking(1)
    assert accelerator._worth_looking(1)
    monkeypatch.setattr(accelerator, "_past", accelerator._Past())
    accelerator.find()
    assert accelerator._worth_looking(1), "who has looked need not wait"


def loads_torch(setting: str, program: str) -> str:
    """What a fresh process with this setting prints, and whether it loaded torch."""
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, sys; os.environ['{SETTING}'] = '{setting}'\n{program}\nprint('torch' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ended.stdout.strip()


FIND = "from colonnade.mpc import accelerator; print(accelerator.find())"


def test_importing_or_refusing_an_accelerator_does_not_load_torch() -> None:
    assert loads_torch("auto", "import colonnade, colonnade.mpc.accelerator") == "False"
    assert loads_torch("off", FIND) == "None\nFalse"


def test_there_is_no_accelerator_without_torch() -> None:
    assert loads_torch("cpu", f"sys.modules['torch'] = None\n{FIND}\ndel sys.modules['torch']") == "None\nFalse"
