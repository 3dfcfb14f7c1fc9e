# `make demo` and `make test` do all the set-up on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
# .venv grows by what is asked of it: what a user of the wheel installs; what lint and the quick suite need besides; what
# clusters and notebooks need besides. Versions and hashes are in requirements/.
LEAN := .venv/.core
READY := .venv/.test
WHOLE := .venv/.system
BENCH := .venv/.bench

# Most of what is installed is never imported: a module is compiled when it is.
INSTALL := $(BIN)/pip install --quiet --no-compile

# One BLAS thread: primes, blocks and processes run side by side instead.
export OPENBLAS_NUM_THREADS := 1
export OMP_NUM_THREADS := 1

# The suite starts hundreds of processes: each module is compiled once, not by every one of them.
unexport PYTHONDONTWRITEBYTECODE

# Each worker has whole files: what a file sets up once is set up once. tests/conftest.py says which come first. The quick
# suite has three workers for two cores, as some tests wait; those of make system start processes of their own.
ABREAST = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
WORKERS := 2
test: WORKERS := 3

# `make test ONLY=glm`: the tests of one kind or folder, and of what depends on it.
CHOOSE = $(if $(ONLY),chosen=$$($(BIN)/python tools/only.py $(ONLY)) &&)

# What two versions could break: everything but models, pages, audits and research.
CORE := tests/tables tests/wire tests/mpc tests/privacy tests/protocols tests/disk tests/cli tests/study \
	tests/models/test_federation.py tests/kinds/pca/test_pca.py tests/models/test_sklearn_protocol.py \
	tools/checks/test_floors.py tests/docs/test_light_imports.py
LOWEST_PYTHON ?= python3.11
PYTHONS ?= python3.11 python3.12 python3.13

.PHONY: demo test system lint check docs questions screenshots notebooks slow lowest pythons core no-environment release bench reproduce audit clean drawings

demo: $(LEAN)  ## three organisations, one private PCA, a report with pictures
	$(BIN)/colonnade demo --out runs/demo

test: $(READY)  ## the quick suite: what guards correctness and privacy (ONLY=glm: one kind; SEED=2: other draws)
	$(CHOOSE) $(if $(SEED),COLONNADE_TEST_SEED=$(SEED)) $(BIN)/pytest $(if $(SEED),--hypothesis-seed=$(SEED)) $(ABREAST) $$chosen

system: $(WHOLE) .venv-moto/.ready  ## processes, terminals, kills, clusters, browsers, notebooks, servers of tables
	$(CHOOSE) $(BIN)/pytest -m 'system and not slow' $(ABREAST) $$chosen

lint: $(READY)  ## style, format, types, and what source and pages must keep to
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses 2 tools/checks

check: lint test system  ## every gate

docs: .venv-docs/.ready  ## the site, into site/: every link and anchor is checked
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

questions: $(READY)  ## what readers ask, typed into the search of site/: the answer must come first (after `make docs`)
	$(BIN)/python tools/questions.py

drawings:  ## the drawings of the documentation: the house, message flows, who sees what
	$(PYTHON) -m tools.drawings

screenshots: $(WHOLE)  ## pictures of every page of the consoles, three of them for the documentation
	$(BIN)/python tools/screenshots.py

notebooks: $(WHOLE)  ## run the notebooks of the documentation, and write their outputs into them
	$(BIN)/python tools/notebooks.py

slow: $(WHOLE)  ## statistical and reproduction tests that take minutes, and examples that hypothesis has not tried
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

audit-dependencies: .venv-audit/.ready  ## known holes in what the locks install; says so where it cannot be looked up
	.venv-audit/bin/python tools/audit_dependencies.py $(AUDIT)

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
	$(BIN)/colonnade audit all --seed 7 --out runs/audit
	$(BIN)/python -m research twins all --seed 7 --out runs/twins

clean:
	rm -rf .venv .venv-* runs dist site

$(LEAN): requirements/core.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) --require-hashes --requirement requirements/core.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	touch $@

# Of builds of torch with locked hashes pip prefers one whose index states its hash, which is the one for accelerators. So
# the build is chosen by its version and checked afterwards. Where none runs by itself, all that it asks for is installed.
$(READY): $(LEAN) requirements/test.txt requirements/torch.txt
	$(INSTALL) --require-hashes --requirement requirements/test.txt
	$(BIN)/pip download --quiet --no-deps --only-binary :all: --constraint constraints.txt --dest .venv/wheels torch
	$(INSTALL) --require-hashes --no-deps --no-index --find-links .venv/wheels --requirement requirements/torch.txt
	rm -r .venv/wheels
	$(BIN)/python -c 'import torch' || $(INSTALL) --constraint constraints.txt torch
	touch $@

$(WHOLE): $(READY) requirements/system.txt
	$(INSTALL) --require-hashes --requirement requirements/system.txt
	touch $@

# Servers that speak S3 and Google's protocol, for the tests. By themselves: what they are made of needs older packages
# than ours. Where they cannot be had, their tests are skipped.
.venv-moto/.ready: requirements/servers.txt
	$(PYTHON) -m venv .venv-moto
	.venv-moto/bin/pip install --quiet --require-hashes --requirement requirements/servers.txt && touch $@ || true

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

.venv-audit/.ready: Makefile
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet "pip-audit>=2.9"
	touch $@

.venv-python%/.ready: requirements/test.txt pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --require-hashes --requirement requirements/test.txt
	$(@D)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(BENCH): $(WHOLE)
	$(INSTALL) --constraint constraints.txt --editable ".[bench]"
	touch $@
