PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FLOOR := .venv-floor
FLOOR_PYTHON ?= $(shell for each in python3.10 python3.11; do $$each -c '' 2>/dev/null && echo $$each && break; done)

.PHONY: venv demo demo-audit test test-long test-floor quick lint knobs start-up gpu-check clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
	touch $(STAMP)

demo: venv
	$(BIN)/python examples/demo.py

demo-audit: venv
	$(BIN)/python -W ignore examples/linear_torch_vs_paddle.py
	$(BIN)/python -W ignore examples/derivatives_numpy_vs_torch.py
	GLOG_minloglevel=2 $(BIN)/python -W ignore examples/adamw_dynamic_vs_static.py

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not long"

test-long: venv
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m long

quick: venv
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not (slow or long)"

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

knobs: venv
	$(BIN)/python tools/builtin.py
	$(BIN)/ruff format --quiet detconf/builtin.py
	$(BIN)/python -m detconf knobs --markdown > docs/knobs.md

start-up: venv
	$(BIN)/python benchmarks/start_up.py

gpu-check: venv
	$(BIN)/python tools/gpu_check.py

# The oldest versions promised; FLOOR_PYTHON names a Python 3.10 or 3.11 where neither is on the path.
test-floor: $(FLOOR)/.installed
	$(FLOOR)/bin/python -m pytest --confcutdir tests/floor tests/floor

$(FLOOR)/.installed: pyproject.toml
	@test -n "$(FLOOR_PYTHON)" || { echo "test-floor needs Python 3.10 or 3.11: make test-floor FLOOR_PYTHON=/path/to/python3.10" >&2; exit 2; }
	$(FLOOR_PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(FLOOR)/bin/python -m pip install --quiet --group floor --editable .
	touch $(FLOOR)/.installed

clean:
	rm -rf $(VENV) $(FLOOR) build dist *.egg-info
