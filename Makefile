# `make demo` and `make test` do all the set-up on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
BENCH := .venv/.bench

# One BLAS thread: primes, blocks and processes run side by side instead.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

# The suite starts hundreds of processes: each module is compiled once, not by every one of them.
unexport PYTHONDONTWRITEBYTECODE

# Two workers, each with whole files: what a file sets up once is set up once. tests/conftest.py says which come first.
ABREAST := --numprocesses 2 --dist loadfile --no-loadscope-reorder

# What two versions could break: everything but models, pages, audits and research.
CORE := tests/tables tests/wire tests/mpc tests/privacy tests/protocols tests/files tests/cli tests/study \
	tests/models/test_federation.py tests/kinds/pca/test_pca.py tests/models/test_sklearn_protocol.py \
	tests/docs/test_floors.py tests/docs/test_light_imports.py
LOWEST_PYTHON ?= python3.11
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: demo test again lint check docs questions screenshots notebooks slow lowest pythons core no-environment release bench reproduce audit clean drawings

demo: $(READY)  ## three organisations, one private PCA, a report with pictures
	$(BIN)/colonnade demo --out runs/demo

test: $(READY) .venv-moto/.ready  ## the quick suite
	$(BIN)/pytest $(ABREAST)

again: $(READY)  ## what failed in the last run, once more and by itself
	$(BIN)/pytest --last-failed --last-failed-no-failures none

lint: $(READY)  ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test  ## every gate

docs: .venv-docs/.ready  ## the site, into site/: every link and anchor is checked
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

questions: $(READY)  ## what readers ask, typed into the search of site/: the answer must come first (after `make docs`)
	$(BIN)/python tools/questions.py

drawings:  ## the drawings of the documentation: the house, message flows, who sees what
	$(PYTHON) -m tools.drawings

screenshots: $(READY)  ## pictures of every page of the consoles, three of them for the documentation
	$(BIN)/python tools/screenshots.py

notebooks: $(READY)  ## run the notebooks of the documentation, and write their outputs into them
	$(BIN)/python tools/notebooks.py

slow: $(READY)  ## statistical and reproduction tests that take minutes, and examples that hypothesis has not tried
	$(BIN)/pytest -m slow --durations=10
	$(BIN)/pytest -m 'hypothesis and not slow' --hypothesis-profile new $(ABREAST)

lowest: .venv-lowest/.ready  ## the core of the suite with exactly the lowest versions that are allowed
	COLONNADE_LOWEST=1 .venv-lowest/bin/python -m pytest $(ABREAST) $(CORE)

pythons:  ## the core with every Python of PYTHONS that is installed, without torch
	@tried=; left=; for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
			|| { left="$$left $$python"; continue; }; \
		$(MAKE) core PYTHON=$$python OTHER=.venv-python$$version || exit 1; \
		tried="$$tried $$python"; \
	done; \
	echo "passed with:$${tried:- none}; not here, so left out:$${left:- none}"; test -n "$$tried"

core: $(if $(OTHER),,no-environment) $(OTHER)/.ready
	$(OTHER)/bin/python -m pytest $(ABREAST) $(CORE)

no-environment:
	@echo "make core takes an environment: make core PYTHON=python3.12 OTHER=.venv-python3.12, or make pythons"; exit 1

release: .venv-release/.ready  ## wheel, sdist, bill of materials and hashes, tried with every Python that is here
	.venv-release/bin/python tools/release.py

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
	rm -rf .venv .venv-* runs dist site

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,nn,console,onnx,traces,ray]"
	touch $@

# Servers that speak S3 and Google's protocol, for the tests. By themselves: what they are made of needs older packages
# than ours. Where they cannot be had, their tests are skipped.
.venv-moto/.ready: Makefile
	$(PYTHON) -m venv .venv-moto
	.venv-moto/bin/pip install --quiet "moto[s3]>=5" flask flask-cors gcp-storage-emulator && touch $@ || true

# Builds the site. By itself: nothing of it is needed to run or to test.
.venv-docs/.ready: tools/site/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --requirement tools/site/requirements.txt
	touch $@

.venv-lowest/.ready: pyproject.toml tools/floors.py
	$(LOWEST_PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python tools/floors.py > .venv-lowest/floors.txt
	.venv-lowest/bin/pip install --quiet --requirement .venv-lowest/floors.txt
	.venv-lowest/bin/pip install --quiet --no-deps --editable .
	touch $@

# By themselves: nothing of what builds and checks a release is needed to work on Colonnade.
.venv-release/.ready: Makefile
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --upgrade "pip>=24" "build>=1.2" "twine>=6.1" "cyclonedx-bom>=7"
	touch $@

.venv-python%/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

$(BENCH): $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,nn,bench]"
	touch $@
