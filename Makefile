# Two commands do everything on a fresh machine: make demo, make test. While working: make quick, make check.
PYTHON ?= python3
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)
VENV := .venv
BIN := $(VENV)/bin

# Without its caches Python would compile everything again at each start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick check firmware pico mip bench clean

demo: $(VENV)/.demo
	$(BIN)/hushmote demo

# pyright keeps one core busy and the firmware's runtimes are downloaded and built on one: both at once.
test: $(VENV)/.test
	$(MAKE) --jobs=2 --output-sync=target check firmware
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

# What needs no broker, database, MicroPython or browser, and is no long simulation.
quick: $(VENV)/.test
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal -m "not (broker or database or micropython or slow)"

firmware: $(VENV)/.test
	$(BIN)/python firmware_tests/run.py

# MicroPython's own firmware on an emulated Raspberry Pi Pico, for make firmware and docs/cost.md: some minutes, 300 MB.
pico: $(VENV)/.test
	$(BIN)/python firmware_tests/runtimes.py --pico

# What mpremote mip install takes: put the folder on a web server, or give its package.json to mpremote.
mip: $(VENV)/.test
	$(BIN)/python -m hushmote.server.provisioning.mip build/mip

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	cd $(VENV)/linked && ../bin/lint-imports --config ../../pyproject.toml

bench: $(VENV)/.bench
	for b in benchmarks/*.py; do $(BIN)/python $$b || exit 1; done

clean:
	rm -rf $(VENV) build *.egg-info

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("hushmote needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# What an extra needs is installed once, and again when pyproject.toml changes.
$(VENV)/.demo $(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	mkdir -p $(VENV)/linked/hushmote
	# The packages as one tree, for tools that do not follow setuptools' package-dir.
	ln -sfn $(addprefix ../../../,device server simulator cli $(wildcard hushmote/*.py)) $(VENV)/linked/hushmote/
	touch $@
