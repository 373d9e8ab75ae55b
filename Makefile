# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make demo   creates the environment, installs, and shows a useful answer
#   make test   creates the environment, installs, and runs all checks and tests

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start hundreds of Python processes: what is compiled is kept, whatever this shell says of it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test fast nightly fuzz lowest newest lock sbom check format replay replay-quick replay-accept browser benchmark site scoreboard choose bands anchors clean

demo: .venv/core
	$(BIN)/foretell predict llama3-8b --on 64xh100 --plan "dp8:zero1 tp8:sp +m8 +bf16" --batch 64 --trainer megatron-core
	$(BIN)/foretell plan llama3.2-1b --on 8xh100 --batch 32 --only dp,tp,recompute

# Each worker goes through its own half, and then helps the other one: what tests of a file share is made once.
test: check browser
	$(BIN)/pytest -n 2 --dist worksteal -q

# Everything, and laws with ten times as many examples, other ones each time: for those who have the night.
nightly: check browser
	$(BIN)/pytest -n 2 --dist worksteal -q --hypothesis-profile=nightly
	$(MAKE) fuzz INPUTS=300000 SEED=$$(date +%s)

# Spoiled inputs over all readers: each ends in an answer or a message. `make fuzz INPUTS=1000000 SEED=7`
INPUTS ?= 30000
SEED ?= 1
fuzz: .venv/dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --inputs $(INPUTS) --seed $(SEED) --jobs $(JOBS)

fast: .venv/dev
	$(BIN)/pytest -n 2 -q -m "not slow"

# The tests of the core, without torch, in environments of their own: with the lowest versions that pyproject.toml
# declares, and with the newest there are. `make lowest PYTHON=python3.13` for another Python, after `make clean`.
lowest newest: .venv/core
	$(BIN)/python tests/machines/distribution.py $@

# What pip checks with --require-hashes: the core, and what the checks use. torch is left out: its builds differ by device.
lock: .venv/dev
	$(BIN)/python tests/machines/locked.py

# What an installed foretell consists of, as CycloneDX.
sbom: .venv/core
	@mkdir -p build
	$(BIN)/python -m foretell.sbom > build/sbom.json

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Whether a change moves a digit: a base commit (where this branch left main) and the working tree answer the same
# questions, compared with ==. `make replay BASE=<commit> SIZE=0.3 JOBS=1`
SIZE ?= 1
replay: .venv/dev
	$(BIN)/python tests/replay/replay.py --base "$(BASE)" --size $(SIZE) --jobs $(JOBS)

replay-quick: .venv/dev
	$(BIN)/python tests/replay/replay.py --base "$(BASE)" --size 0.1 --jobs $(JOBS)

# Where numbers are meant to move: the sample that the tests compare with is stored anew, the moves are written down.
replay-accept: .venv/dev
	$(BIN)/python tests/replay/replay.py --base "$(BASE)" --size $(SIZE) --jobs $(JOBS) --accept "$(REASON)"

# The page is tested in a real browser. Where there is none and this machine lets us, Debian's is installed; where not,
# those tests are skipped and say so.
CHROMIUM := command -v chromium || command -v chromium-browser || command -v google-chrome
INSTALL_CHROMIUM := timeout 300 apt-get install -y -qq --no-install-recommends chromium
browser:
	@{ $(CHROMIUM); } >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ $(INSTALL_CHROMIUM) || { timeout 300 apt-get update -qq && $(INSTALL_CHROMIUM); }; } >/dev/null 2>&1; } || \
		echo "no chromium here: the tests of the page are skipped (apt-get install chromium)"

benchmark: .venv/dev
	$(BIN)/python benchmarks/analyze.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "foretell needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

# timm comes alone: it would bring torchvision, whose usual build does not load beside torch for CPUs and stops others
# (transformers) from loading too; what timm needs besides is there.
.venv/dev: .venv/core
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps timm
	@touch $@

site: .venv/core
	$(PIP) -e '.[docs]'
	$(BIN)/python docs/staged.py
	$(BIN)/zensical build --clean

scoreboard: .venv/core
	$(BIN)/foretell validate > studies/published/scoreboard.txt

# Constants without each source, for the score of sources left out.
choose: .venv/core
	$(BIN)/foretell validate --choose

bands: .venv/core
	$(BIN)/foretell validate --coverage --learn src/foretell/oracle/bands.json

# What one measured run does for the others of its source, what our picks cost, and whether faults planted into real
# ranks are named.
anchors: .venv/core
	$(BIN)/foretell validate --anchors
	$(BIN)/python benchmarks/blame.py

clean:
	rm -rf build site .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
