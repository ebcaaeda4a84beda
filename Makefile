# Two commands on a fresh machine: `make demo` and `make test`. Each creates .venv and installs what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A CPU build where pip can find one; without it sentence-transformers would bring several GB of CUDA.
TORCH ?= torch==2.13.0
# One thread: simulations and single queries are up to ten times slower with two on a busy machine.
export OMP_NUM_THREADS ?= 1
export LANGSMITH_TRACING ?= false

# Databases of tests go to a file system in memory where there is one: the disk would be most of the time.
IN_MEMORY := $(if $(wildcard /dev/shm/.),env TMPDIR=/dev/shm)

.PHONY: coverage demo examples test lint types layers unit audit lowest soak pgbouncer bench governance-bench paper clean

demo: $(VENV)/.demo
	$(BIN)/langchain-memoryworth demo

# The files that README names, on the packaged model, without a network.
examples: $(VENV)/.demo
	for name in chain_with_handler episode_outside_one_run delayed_feedback graph_nodes; do \
	  $(BIN)/python -m langchain_memoryworth.demo.offline_model examples/$$name.py || exit 1; done

test: lint types layers unit

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive langchain_memoryworth examples --configfile pyproject.toml

types: $(VENV)/.test
	$(BIN)/mypy

layers: $(VENV)/.test
	$(BIN)/lint-imports

unit: $(VENV)/.test
	$(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist loadfile

# The same with branch coverage, which makes it a third slower.
coverage: $(VENV)/.test
	$(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist loadfile --cov --cov-report=term

# Known vulnerabilities of what is installed. It asks a service on the network, and what the service does not know counts as not
# audited: with --strict that is an error and no silent success.
audit: $(VENV)/.audit
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+.*//' > $(VENV)/installed.txt
	$(BIN)/pip-audit --strict --disable-pip --no-deps --requirement $(VENV)/installed.txt || { \
	  echo "audit: a vulnerability, or nothing could be said (no network, or a package that the service does not know): see above"; \
	  exit 1; }

$(VENV)/.audit: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --group audit
	touch $@

# The oldest releases that pyproject.toml allows, in an environment of their own, on all tests of the core. Left out is what needs
# packages that do not go with the oldest ones.
lowest: .venv-lowest/.lowest
	$(IN_MEMORY) .venv-lowest/bin/python -m pytest tests -n 4 --dist loadfile --ignore=tests/demo --ignore=tests/experiments \
	  --ignore=tests/test_agents_elsewhere.py --ignore=tests/test_milvus.py --ignore=tests/test_sources.py \
	  --ignore=tests/test_compatibility.py --ignore=tests/feedback_services.py

.venv-lowest/.lowest: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(PYTHON) tests/lowest_pins.py > .venv-lowest/pins.txt
	.venv-lowest/bin/python -m pip install --quiet "$(TORCH)"
	.venv-lowest/bin/python -m pip install --quiet --editable ".[demo]" --group test --constraint .venv-lowest/pins.txt
	touch $@

# What takes longer than a change may wait: faults at the numbers of docs/reliability.md, which it writes anew, long state machines,
# and new trees of runs.
soak: $(VENV)/.test
	$(IN_MEMORY) $(BIN)/python -m tests.reliability --kills 500 --outcomes 20000
	$(IN_MEMORY) env MEMORYWORTH_TREES=5000 HYPOTHESIS_PROFILE=soak \
	  $(BIN)/python -m pytest --timeout=0 tests/test_ledger_machine.py tests/test_run_fuzz.py

# The tests on Postgres again, through a PgBouncer that pools transactions (Debian: apt-get install pgbouncer). Left out are those that look
# at sessions themselves, which the proxy hands to anybody, or log in as roles that it does not know.
pgbouncer: $(VENV)/.test
	MEMORYWORTH_PGBOUNCER=1 $(BIN)/python -m pytest -k "postgres and not role and not another_connection and not during_a_migration" \
	  tests/test_postgres.py tests/test_store.py tests/test_ledger_machine.py tests/test_workers.py

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

# Which rule decides best, in simulated worlds and, with MEMENTO=<folder>, on a real log. Goes on where it was stopped. It does not
# write over a page with results of that log without it.
governance-bench: $(VENV)/.test
	$(BIN)/python -m benchmarks.governance $(if $(MEMENTO),--memento $(MEMENTO))

paper: $(VENV)/.test
	$(BIN)/langchain-memoryworth paper all --out docs/paper

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	touch $@

$(VENV)/.demo: $(VENV)/.pip pyproject.toml
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	touch $@

$(VENV)/.test: $(VENV)/.demo pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[demo,paper]" --group test --group adapters
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest .pytest_cache .mypy_cache .ruff_cache .hypothesis
