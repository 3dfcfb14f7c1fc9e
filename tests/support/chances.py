"""The tests that could fail by bad luck, and how likely that is in one run of the suite.

Everything that is drawn in the process of the tests is the same in every run (``tests/support/repeatable.py``), and
hypothesis tries the same examples in every run; such a test fails always or never. (``make test SEED=2`` draws other
keys and examples; then each test of a law has a chance of its own, of 1e-9 where it looks at a p-value.) What is left
are numbers that are made of noise drawn by other processes, which ask the operating system as they do in users' hands.
Each such assertion is listed here with a bound on its chance of a false alarm: deviations are those of the known law of
the noise, or were measured over repeated runs, and the bound is that of a normal law, ten times as large to be on the
safe side.
"""

from __future__ import annotations

CHANCES = {
    # counts of 8 cells within 8 deviations of their noise: 8 x 1.2e-15
    "tests/kinds/synthesis/test_studies.py::test_three_files_become_a_published_table": {
        "published counts": 1e-13,
        "the noisy number of people, 11 deviations (22 measured, 250 allowed)": 1e-20,
        "distance of two-way tables, 33 deviations (0.0022 measured, 0.073 allowed)": 1e-20,
    },
    "tests/study/lanes/test_lanes.py::test_a_study_in_processes": {"the noisy number of people, 8 deviations": 1e-13},
    # 9 generators with at least 53 random bits in each of three processes: 27 x 2^-53
    "tests/study/test_fork_server.py::test_random_generators_are_fresh_and_nothing_of_others_is_open": {
        "no two of three processes draw the same": 1e-14,
    },
}
"""Test: what it says about numbers of other processes, and how likely that fails although nothing is wrong."""

BY_CHANCE = sum(chance for said in CHANCES.values() for chance in said.values())
"""How likely one run of the whole suite fails by bad luck: below 3e-13."""
