# The commands of this project; CI runs only these. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Settings that a caller may give: `make unit ARGS="-k planner -x"`.
ARGS ?=
# The interpreter that makes the virtual environment; empty: the first good one on the path.
PYTHON ?=

# What runs here must see neither the caller's packages nor, by way of Spark, another interpreter.
unexport PYTHONPATH PYTHONHOME SPARK_HOME
# Hundreds of processes are started, and each would compile all modules again: a second of processor time.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help: ## list the commands
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# ---------------------------------------------------------------- environment

.PHONY: install
install: $(STAMP) ## make .venv with everything, by hashes; quick when nothing changed

# A candidate may be a version manager's stub that only prints an error, so each is asked to run something.
$(STAMP): requirements-dev.txt pyproject.toml
	@if [[ ! -x $(BIN)/python ]]; then \
	  for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
	    if "$$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$candidate; break; fi; \
	  done; \
	  if [[ -z "$${found-}" ]]; then \
	    echo "make install: no Python 3.11 or newer with its venv module on the path." >&2; \
	    echo "  Debian, Ubuntu: apt install python3 python3-venv. Or name one: make install PYTHON=..." >&2; \
	    exit 1; \
	  fi; \
	  echo "making $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv $(VENV); \
	fi
	@echo "installing what requirements-dev.txt names, $$(grep -c == requirements-dev.txt) packages at most: some minutes"
	@$(BIN)/python -m pip install --require-hashes --requirement requirements-dev.txt
	@echo "installing anabranch itself, editable"
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable '.[run]'
	@touch $@

.PHONY: openssl
openssl:
	@command -v openssl >/dev/null || { \
	  echo "make security: no openssl program on the path, which makes the tests' certificates." >&2; \
	  echo "  Debian, Ubuntu: apt install openssl. macOS: brew install openssl." >&2; \
	  exit 1; \
	}

.PHONY: doctor
doctor: install ## check Java, Python, ports
	$(BIN)/anabranch doctor

.PHONY: lock
lock: ## compute requirements*.txt anew from pyproject.toml (needs uv); LOCK_ARGS=--upgrade takes newer versions
	uv pip compile pyproject.toml --extra run $(LOCK_FLAGS) --output-file requirements.txt >/dev/null
	uv pip compile pyproject.toml --extra run --group dev $(LOCK_FLAGS) --output-file requirements-dev.txt >/dev/null
# Hashes but no addresses: the files serve with any mirror, and name no registry.
LOCK_ARGS ?=
LOCK_FLAGS = --quiet --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header $(LOCK_ARGS)

# Not there is slower, not wrong: so it stops nobody.
.PHONY: classes
classes: install ## the archive with which Spark's Java starts in half of the time; once per machine, half a minute
	-@$(BIN)/anabranch classes

# ---------------------------------------------------------------- checks

# Each run tries its own examples of a property; make nightly tries ten times as many.
FEW_EXAMPLES := ANABRANCH_TEST_EXAMPLES=0.4
# How many processes at once, where nothing needs the machine for itself.
JOBS ?= 2
# The same of tests that mostly wait, for a broker or for what it makes others do.
WAITING_JOBS ?= 6
# A test process that breaks down ends the run: what it leaves undone is never waited for.
PROCESSES := --max-worker-restart 0 --numprocesses
# By files, in the order of tests/harness/order.py: the tests of some share a broker, a Spark or what a process printed.
DEALT := --dist loadfile --no-loadscope-reorder
WAITING = $(FEW_EXAMPLES) $(PYTEST) --quiet -m "not nightly" $(PROCESSES) $(WAITING_JOBS) $(DEALT)
# Who waits for real time goes first, but what computes gets enough for its own deadlines.
POLITE := 15
BEGUN_S := $(shell date +%s)

.PHONY: test
test: openssl lint ## everything CI runs; what computes fills the time in which tests on real servers wait (docs/benchmarks.md: how long)
	@log=$$(mktemp); \
	nice -n $(POLITE) $(MAKE) computing >"$$log" 2>&1 & \
	beside=$$!; \
	trap 'kill $$beside 2>/dev/null || true; wait $$beside || true; cat "$$log"; rm -f "$$log"' EXIT; \
	ANABRANCH_TEST_BESIDE="$$beside $(JOBS)" $(MAKE) classes waiting spark; \
	wait $$beside; \
	cat "$$log"; \
	: >"$$log"; \
	echo "make test took $$(( $$(date +%s) - $(BEGUN_S) )) s; docs/benchmarks.md says what it took before"

.PHONY: computing
computing: types imports covered ## what needs a processor and nobody's answer: types, imports, tidy, unit, simulated
	$(UNIT) $(TIDY) $(NOT_COVERED) $(SIMULATED)

.PHONY: lint
lint: install ## ruff: style and mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: install ## ruff: put the code into its form
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

.PHONY: types
types: install ## mypy, strict
	$(BIN)/mypy

.PHONY: imports
imports: install ## import-linter: imports go one way
	$(BIN)/lint-imports

UNIT := $(FEW_EXAMPLES) $(PYTEST) --quiet -m "not nightly" $(PROCESSES) $(JOBS) --dist worksteal
# What `computing` has in one run: three would have six processes import what is tested, and end with one at work each.
TIDY := tests/tidy
NOT_COVERED := tests/unit tests/properties --ignore=tests/unit/protocol --ignore=tests/unit/codec
SIMULATED := tests/checkers tests/simulation tests/chaos tests/moves

.PHONY: tidy
tidy: install ## purity, names, mirror of tests, limits, documents
	$(PYTEST) $(TIDY) --quiet $(ARGS)

# Tracing slows down all that runs under it, so only those tests do that are there to cover.
.PHONY: covered
covered: install ## unit tests of protocol/ and codec/, which must cover these whole, by branch
	$(UNIT) tests/unit/protocol tests/unit/codec --cov=anabranch.protocol --cov=anabranch.codec --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

.PHONY: unit
unit: $(if $(ARGS),install,covered) ## unit and property tests, those of `covered` first; with ARGS without coverage
	$(UNIT) $(if $(ARGS),tests/unit tests/properties,$(NOT_COVERED)) $(ARGS)

.PHONY: simulated
simulated: install ## 300 seeds of the whole system, other ones for every text of services/, under virtual time, and the checkers themselves (two minutes of processor time)
	$(PYTEST) $(SIMULATED) --quiet -m "not nightly" $(PROCESSES) $(JOBS) --dist worksteal $(ARGS)

# What `simulation` and `mutants` take: how many seeds, the first one (not given: it follows from the text of services/).
SEEDS ?=
SEED ?=
FIRST ?=

.PHONY: simulation
simulation: install ## many seeds (SEEDS=3000 FIRST=1000 JOBS=2), or one with its history (SEED=17)
	@PYTHONPATH=tests:services $(BIN)/python -m simulation.explore $(if $(SEED),--first $(SEED) --seeds 1 --show,$(if $(FIRST),--first $(FIRST)) --seeds $(or $(SEEDS),1000) --jobs $(JOBS)) $(ARGS)

.PHONY: mutants
mutants: install ## bugs planted on purpose, each to be found within SEEDS=1000 seeds (an hour; ARGS="name ..." for some)
	@PYTHONPATH=tests:services $(BIN)/python -m simulation.mutants --seeds $(or $(SEEDS),1000) --jobs $(JOBS) $(ARGS)

# What `chaos` takes: for how many minutes there are faults; which ones and when is drawn from SEED (default 1).
MINUTES ?= 3
# How many runs, each of a seed of its own.
RUNS ?=

.PHONY: chaos
chaos: classes ## real processes under real faults drawn from SEED=k for MINUTES=n, then judged; RUNS=n tells how many are clean (ARGS="--faults kill,pause --replicas 1"; "--elastic": moves and a split among them; "--overload": rushes)
	@PYTHONPATH=tests:services $(BIN)/python -m chaos --minutes $(MINUTES) --runs $(or $(RUNS),1) --seed $(or $(SEED),1) $(ARGS)

.PHONY: moves
moves: classes ## a stage moves between two owners under load, and in each movement a random party is killed; then judged (ARGS="--moves 50 --seed 1"; half a minute each)
	@PYTHONPATH=tests:services $(BIN)/python -m moves $(ARGS)

.PHONY: conformance
conformance: install ## one suite per port, over the in-memory, Kafka and Redis adapters
	$(WAITING) tests/conformance $(ARGS)

.PHONY: integration
integration: install ## services on a real broker and Redis
	$(WAITING) tests/integration $(ARGS)

# They are short, so Java's quick compiler is enough.
.PHONY: spark
spark: classes ## stages on real Spark and a real broker
	ANABRANCH_SPARK_COMPILERS=quick $(PYTEST) tests/spark --quiet -m "not nightly" $(PROCESSES) $(JOBS) $(DEALT) $(ARGS)

.PHONY: cluster-test
cluster-test: openssl install ## a pipeline on three brokers, one after the other killed; a stage on a Spark cluster that loses a worker, its node, its master, with security on Kafka, too (many minutes; not part of `test`)
	$(PYTEST) tests/integration tests/spark tests/security --quiet -m cluster $(ARGS)

.PHONY: security
security: openssl install ## who may do what on a secured broker and Redis, where secrets show, hostile input (three minutes)
	$(WAITING) tests/security $(ARGS)

# One after the other each would end with few processes at work, and start all of them again.
.PHONY: waiting
waiting: openssl install ## conformance, security and integration in one run, as `test` has them
	$(WAITING) tests/security tests/integration tests/conformance $(ARGS)

# With small numbers it is soon over: SEEDS=50 RUNS=1 MINUTES=1 ARGS="--only seeds,chaos --report evidence.md".
.PHONY: nightly
nightly: classes openssl ## all that takes too long for `test` (a night): every crash point, operator and lost disk, cluster-test, mutants, SEEDS=5000, chaos RUNS=10; writes tests/nightly/evidence.md
	@PYTHONPATH=tests:services $(BIN)/python -m nightly --seeds $(or $(SEEDS),5000) --runs $(or $(RUNS),10) --minutes $(MINUTES) --jobs $(JOBS) $(if $(SEED),--chaos-seed $(SEED)) $(ARGS)

.PHONY: compose-test
compose-test: install ## bring docker-compose.yml up, produce, consume, compare, take down (needs a docker engine)
	$(BIN)/python -m deploy.compose_test

.PHONY: ci
ci: test ## what .ci/run runs

# ---------------------------------------------------------------- running

.PHONY: demo
demo: classes ## the toll-road example end to end, compared with an oracle
	$(BIN)/python -m demo $(ARGS)

.PHONY: demo-federation
demo-federation: classes ## the query of Medusa's Figure 1 at three participants: a partner runs a stage of a region in its rush, under a contract; compared with an oracle
	$(BIN)/python -m examples.market.demo $(ARGS)

.PHONY: demo-outage
demo-outage: classes ## three participants, of whom one goes away and comes back, compared with an oracle
	$(BIN)/python -m examples.federation.demo $(ARGS)

.PHONY: demo-overload
demo-overload: classes ## a stage gets twice what it can process: results in time from part of the rows, then corrected, compared with an oracle (two to four minutes; ARGS="--shed keys"; "--fault kill-correcting": something fails besides)
	@PYTHONPATH=services $(BIN)/python -m experiments.overload.demo $(ARGS)

.PHONY: bench
bench: classes ## throughput and latency beside plain PySpark, its real-time mode and Flink SQL, to benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks.run $(ARGS)

.PHONY: bench-chain
bench-chain: classes ## two chained stages at a light load: time to start, age of results, processor time, memory (ARGS="--replicas 2", "--pause 12")
	$(BIN)/python -m benchmarks.chain $(ARGS)

.PHONY: bench-dpc
bench-dpc: classes ## delay and inconsistency under failures, beside the published figures, to experiments/dpc/RESULTS.md
	$(BIN)/python -m experiments.dpc $(ARGS)

.PHONY: bench-overload
bench-overload: classes ## a minute of twice the load that a stage can process, with each kind of shedding and without, to docs/experiments/overload.md (two hours, on an idle machine; ARGS="--run rows", "--virtual" for the rules alone)
	@PYTHONPATH=tests:services $(BIN)/python -m experiments.overload $(ARGS)

.PHONY: bench-elastic
bench-elastic: classes ## restarts, moves and recovery of a stage against the size of its state, and its throughput by the scaler alone, to docs/experiments/elastic.md (two hours and a half, on an idle machine; ARGS="--run move-200"; a call continues the one before it)
	@PYTHONPATH=tests:services $(BIN)/python -m experiments.elastic $(ARGS)

.PHONY: bench-backtracking
bench-backtracking: install ## recovery by ASK beside acknowledgements and nothing: prints the table of experiments/backtracking/RESULTS.md
	$(BIN)/python -m experiments.backtracking --pace-ms 20 $(ARGS)

.PHONY: bench-ha
bench-ha: classes ## what each mode of `ha` costs and how long it takes until results come again, to docs/experiments/high_availability.md (twenty minutes, on an idle machine; ARGS="--virtual" for the rules alone, "--mode amnesia")
	@PYTHONPATH=tests:services $(BIN)/python -m experiments.ha $(ARGS)

.PHONY: bench-batch
bench-batch: classes ## what a small batch costs Spark and the share of each setting, to benchmarks/BATCH.md (12 minutes; ARGS="--first 600 --last 660" once Java is warm)
	$(BIN)/python -m benchmarks.batch $(ARGS)

.PHONY: linear-road
linear-road: classes ## Linear Road, each answer judged: border cases, then a hot quarter of an hour whose last three minutes go by the clock (five minutes; ARGS="--xways 2 --minutes 180" is a full run, "--last 15" runs only its end by the clock, "--fault cut" breaks something meanwhile)
	$(BIN)/python -m benchmarks.linear_road $(ARGS)

.PHONY: smart-grid
smart-grid: classes ## the smart grid's load predictions and outliers, each result judged: at full speed, then overloaded with shedding (five minutes; ARGS="--houses 40 --minutes 15" is the whole challenge in twelve, "--minutes 60" an hour of it)
	$(BIN)/python -m benchmarks.smart_grid $(ARGS)

.PHONY: nexmark
nexmark: classes ## Nexmark's queries in SQL beside plain PySpark and Flink SQL, each answer judged, to docs/experiments/nexmark.md (half an hour; ARGS="--queries q5,q7 --events 200000" is quick)
	$(BIN)/python -m benchmarks.nexmark $(ARGS)

.PHONY: market
market: install ## the market for load among 995 participants: tables and plots, to docs/experiments (three minutes; ARGS="--participants 200 --seeds 1" is quick)
	$(BIN)/python -m experiments.market $(ARGS)

.PHONY: market-nodes
market-nodes: classes ## three owners on real nodes, before their contracts and with them: loads over time and settled sums, to docs/experiments/market.md (ten minutes, on an idle machine)
	@PYTHONPATH=tests:services $(BIN)/python -m experiments.market.nodes $(ARGS)

.PHONY: long-stream
long-stream: classes ## does memory grow with the length of the stream: 5 million records (four minutes, and what starts before), compared
	$(BIN)/python -m benchmarks.long_stream $(ARGS)

.PHONY: screenshots
screenshots: install ## the pictures of docs/dashboard.md, by a headless Chromium (Debian: chromium, chromium-driver)
	@PYTHONPATH=tests:services $(BIN)/python -m harness.page_pictures $(ARGS)

.PHONY: grafana
grafana: install ## deploy/grafana.json anew, from docs/metrics.md
	$(BIN)/python -m deploy.grafana_board

.PHONY: cli-reference
cli-reference: install ## docs/cli.md anew, from the commands
	$(BIN)/python -m deploy.cli_reference

.PHONY: up
up: ## the deployment of docker-compose.yml (needs a docker engine)
	docker compose up --detach --wait --build

.PHONY: down
down: ## stop that deployment; its volumes stay
	docker compose down

# ---------------------------------------------------------------- housekeeping

.PHONY: clean
clean: ## remove what the checks leave behind; .venv stays
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* build dist spark-warehouse artifacts
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
