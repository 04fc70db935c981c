PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: venv demo test quick lint knobs clean

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable .
	touch $(STAMP)

demo: venv
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest

quick: venv
	$(BIN)/python -m pytest -m "not slow"

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

knobs: venv
	$(BIN)/python -m detconf knobs --markdown > docs/knobs.md

clean:
	rm -rf $(VENV) build dist *.egg-info
