# `make demo` and `make test` do all the set-up on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BENCH := .venv/.bench

# One BLAS thread: primes, blocks and processes run side by side instead.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

# Two workers, each with whole files: what a file sets up once is set up once.
ABREAST := --numprocesses 2 --dist loadfile

.PHONY: demo test lint check slow bench reproduce audit clean

demo: $(READY)  ## three organisations, one private PCA, a report with pictures
	$(BIN)/colonnade demo --out runs/demo

test: $(READY)  ## the quick suite
	$(BIN)/pytest $(ABREAST)

lint: $(READY)  ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## every gate

slow: $(READY)  ## statistical and reproduction tests that take minutes, and examples that hypothesis has not tried
	$(BIN)/pytest -m slow --durations=10
	$(BIN)/pytest -m 'hypothesis and not slow' --hypothesis-profile new $(ABREAST)

bench: $(BENCH)  ## speed, memory and bytes, beside peers
	$(BIN)/python benchmarks/run.py

reproduce: $(READY)  ## the papers' figures and tables on real data sets (COLONNADE_DATA names their folder)
	$(BIN)/python benchmarks/pca_utility.py
	$(BIN)/python -m research reproduce sqm --out benchmarks/results
	$(BIN)/python -m research reproduce functional --peers benchmarks/results/diffprivlib.csv --out benchmarks/results
	$(BIN)/python -m research reproduce hdp --peers benchmarks/results/exchange.csv --out benchmarks/results
	$(BIN)/python -m research reproduce dpvi --peers benchmarks/results/synthetic-scores.csv --out benchmarks/results
	$(BIN)/python -m research reproduce afe --workers 2 --out benchmarks/results
	$(BIN)/python -m research reproduce synthesis --peers benchmarks/results/synthetic-scores.csv --out benchmarks/results

audit: $(READY)  ## attack every promise from below; mechanisms broken on purpose must be caught
	$(BIN)/colonnade audit all --twins --seed 7 --out runs/audit

clean:
	rm -rf .venv runs dist

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,nn]"
	touch $@

$(BENCH): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,nn,bench]"
	touch $@
