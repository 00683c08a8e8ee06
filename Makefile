# make train, make test: each sets up .venv first if it is missing.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: help train test check docs format lock clean
.DEFAULT_GOAL := help

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

train: .venv/run.stamp  ## set up, then train on the packaged plays; more: make train ARGS="norm=batchnorm"
	$(BIN)/python train.py $(ARGS)

test: .venv/dev.stamp  ## set up, then run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: .venv/dev.stamp  ## format, lint and types, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: .venv/dev.stamp  ## measure and write the tables, draw the pictures
	$(BIN)/python tools/write_tables.py
	$(BIN)/python tools/draw_axes.py

format: .venv/dev.stamp  ## format the code, mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The CPU build of torch calls itself 2.13.0+cpu, which cannot be installed elsewhere.
lock: .venv/dev.stamp  ## pin requirements*.in into requirements*.txt
	$(BIN)/pip-compile $(LOCK_FLAGS) --output-file=requirements.txt requirements.in
	sed -i.bak 's/^\(torch==[^+]*\)+cpu/\1/' requirements.txt && rm requirements.txt.bak
	$(BIN)/pip-compile $(LOCK_FLAGS) --output-file=requirements-dev.txt requirements-dev.in
LOCK_FLAGS := --quiet --no-emit-index-url --no-emit-find-links --strip-extras --allow-unsafe

clean:  ## delete .venv and caches (runs/ and sweeps/ stay)
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/run.stamp: requirements.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("normlab needs Python 3.11 or newer, this is %s; use make PYTHON=python3.11 ..." % sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	touch $@

.venv/dev.stamp: .venv/run.stamp requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	touch $@
