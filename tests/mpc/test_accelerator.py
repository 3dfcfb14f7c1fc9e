"""The torch path beside the CPU path, bit for bit: on a GPU where there is one, else on CPU tensors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from threading import current_thread, enumerate as enumerate_threads

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError
from colonnade.mpc import accelerator
from colonnade.mpc.accelerator import SEARCH_THRESHOLD, SETTING, Accelerator, is_worthwhile
from colonnade.mpc.residues import PRIMES, ResidentRows, ResidueSystem
from tests.support.errors import refused

Array = NDArray[np.float64]


FIND = "from colonnade.mpc import accelerator; print(accelerator.find_device())"
HAS_TORCH = importlib.util.find_spec("torch") is not None


with_torch = pytest.mark.skipif(not HAS_TORCH, reason="could not import 'torch'")


@pytest.fixture(scope="module", params=["cpu", "auto"])
def device(request: pytest.FixtureRequest) -> Accelerator:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, request.param)
        found = accelerator.find_device()
    if found is None:
        pytest.skip("there is no GPU with fast float64 here" if HAS_TORCH else "could not import 'torch'")
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


def test_a_device_that_computes_wrongly_is_found_out(device: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.is_exact()
    product = device.torch.bmm

    def with_fewer_bits(left: object, right: object, *, out: object) -> object:
        return product(left, right, out=out).copy_(product(left, right).float())

    monkeypatch.setattr(device.torch, "bmm", with_fewer_bits)
    assert not device.is_exact()


def test_only_products_that_pay_for_the_way_leave_the_cpu() -> None:
    for rows, a, b, worth in (
        (195_666, 117, 117, True),
        (801, 6844, 13_687, True),
        (8192, 33, 67, False),
        (20_000_000, 10, 10, False),  # moving so many numbers takes longer
        (100, 100, 100, False),
    ):
        assert is_worthwhile((4, rows, a), (4, rows, b)) == worth


def test_a_wrong_setting_is_refused_and_there_is_no_accelerator_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "gpu")
    refused(ColonnadeError, "CO024", accelerator.find_device)
    monkeypatch.setenv(SETTING, "cpu")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(accelerator, "_device_search", accelerator._DeviceSearch())
    monkeypatch.setattr(
        accelerator, "_search_device", accelerator._search_device.__wrapped__
    )  # as nothing was found before
    assert accelerator.find_device() is None


@with_torch
def test_a_large_product_is_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "cpu")
    system = ResidueSystem(PRIMES[:1])
    left = extreme(system, (9000, 128), 1)
    got = accelerator.offload_product(left, left, system.primes)
    monkeypatch.setenv(SETTING, "off")
    assert accelerator.offload_product(left, left, system.primes) is None
    assert got is not None
    assert same(got, system.inner(left, left))


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As in a process that has not looked yet, on a machine with a driver; who has begun to look."""
    begun: list[str] = []
    monkeypatch.setattr(accelerator, "_device_search", accelerator._DeviceSearch())
    monkeypatch.setattr(accelerator, "_has_driver", lambda: True)
    monkeypatch.setattr(accelerator, "find_device", lambda: begun.append(current_thread().name))
    monkeypatch.setenv(SETTING, "auto")
    return begun


def test_a_device_is_looked_for_once_when_there_is_work_enough(search: list[str]) -> None:
    """Products that stay on the CPU count as work, too."""
    left = np.zeros((1, 9000, 128))
    assert accelerator.offload_product(left, left, PRIMES[:1]) is None
    assert accelerator._device_search.multiplications == 9000 * 128**2
    accelerator.expect_work(SEARCH_THRESHOLD - 9000 * 128**2 - 1)
    assert search == []
    accelerator.expect_work(1)
    accelerator.expect_work(SEARCH_THRESHOLD)
    for thread in enumerate_threads():
        if thread.name == "accelerator":
            thread.join()
    assert search == ["accelerator"]


def test_nobody_looks_where_there_is_no_driver_or_where_it_is_off(
    search: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, driver in (("off", True), ("auto", False)):
        monkeypatch.setattr(accelerator, "_device_search", accelerator._DeviceSearch())
        monkeypatch.setenv(SETTING, setting)
        monkeypatch.setattr(accelerator, "_has_driver", lambda driver=driver: driver)
        accelerator.expect_work(2 * SEARCH_THRESHOLD)
    assert search == []
    assert accelerator.current_device() is None


@pytest.mark.system
@pytest.mark.parametrize(
    ("setting", "program", "printed"),
    [
        ("auto", "import colonnade, colonnade.mpc.accelerator", "False"),
        ("off", FIND, "None\nFalse"),
        ("cpu", f"sys.modules['torch'] = None\n{FIND}\ndel sys.modules['torch']", "None\nFalse"),
    ],
    ids=["imported", "off", "not installed"],
)
def test_a_process_that_imports_or_refuses_an_accelerator_does_not_load_torch(
    setting: str, program: str, printed: str
) -> None:
    script = f"import os, sys; os.environ['{SETTING}'] = '{setting}'\n{program}\nprint('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1200, check=True)
    assert ended.stdout.strip() == printed


@with_torch
def test_rows_that_are_kept_give_the_same_products_with_a_device_and_when_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = ResidueSystem(PRIMES[:2])
    rows = extreme(system, (50, 40), 1).astype(np.int32)
    public = system.to_residues(np.arange(80.0).reshape(40, 2))
    monkeypatch.setenv(SETTING, "off")
    want = ResidentRows(system, [rows[:, :30], rows[:, 30:]], 7).products(public)
    monkeypatch.setenv(SETTING, "cpu")
    kept = ResidentRows(system, [rows[:, :30], rows[:, 30:]], 7)
    assert same(kept.products(public), want)
    assert kept._placed

    def failing(*_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(Accelerator, "inner", failing)
    assert same(kept.products(public), want)
    assert not kept._placed


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.integers(0, 9000), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**31))
def test_products_have_the_bits_of_the_cpu_path(
    device: Accelerator, primes: int, rows: int, a: int, b: int, seed: int
) -> None:
    system = ResidueSystem(PRIMES[:primes])
    left, right = extreme(system, (rows, a), seed), extreme(system, (rows, b), seed + 1)
    want = system.inner(left, right)
    assert same(device.inner(left, right, system.primes), want)
    placed = device.inner(device.place(left), device.place(right), system.primes)
    assert same(device.fetch(placed), want)
    assert same(device.fetch(device.inner(device.place(left), right, system.primes)), want)
    if rows:
        turned = np.ascontiguousarray(left.transpose(0, 2, 1))
        assert same(device.matmul(turned, right, system.primes), want)
        assert same(device.fetch(device.matmul(device.place(turned), device.place(right), system.primes)), want)
