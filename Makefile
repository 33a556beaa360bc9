# make demo, make test: all they need is Python 3.11 or newer, make and a package index.
# The first call installs into .venv; a later one does so again only if pyproject.toml or constraints.txt changed.
#   make demo PYTHON=python3.12              another Python
#   make demo PIP="--extra-index-url URL"    another package index, e.g. one with CPU builds of torch

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP ?=
BIN := .venv/bin
INSTALL = $(BIN)/pip install -qq --disable-pip-version-check --no-build-isolation -c constraints.txt $(PIP)

# Tests start a hundred processes; without bytecode each compiles torch and Lightning anew, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test test-long gpu fuzz mutants lint format generate docs wheel clean
.SILENT:

help:
	echo "make demo       a small model learns to write stories while you watch: 4 to 7 minutes"
	echo "make check      lint, and the tests that a change breaks first: 90 s on 2 cores"
	echo "make test       every check and every test: within 10 minutes on 2 idle cores"
	echo "make test-long  the tests that take minutes each"
	echo "make gpu        on a GPU: is it right, and how fast; within 10 minutes on an H100"
	echo "make fuzz       wrong command lines, damaged files, wrong calls: 5,000 trials or 10 minutes"
	echo "make mutants    errors injected at random: the share that the tests and verify catch; hours"
	echo "make lint       ruff, import-linter, codespell, pyright; make format repairs what it can"
	echo "make generate   writes again the lists, the page of samples and the pictures that are made from the code"
	echo "make docs       the documentation, as HTML, in docs/_build"
	echo "make wheel      the wheel and the sources to release, in dist"
	echo "make clean      removes .venv and everything that was made from the sources"

demo: .venv/run.stamp
	$(BIN)/zellige demo $(ARGS)

# The architecture; processes, predictions and bounds by enumeration; the closed forms of methods against them; every method saved
# and loaded; on the command line a model trained, evaluated, sampled and reported, and wrong options.
CHECK = tests/test_architecture.py tests/test_citations.py tests/core \
	tests/methods/test_d3pm.py::test_closed_form_is_the_definition \
	tests/methods/test_genmd4.py::test_closed_form_is_the_generic_bound \
	tests/methods/test_method.py::test_masked_closed_forms_are_the_generic_terms \
	tests/methods/test_sedd.py::test_the_closed_form_is_the_bound \
	tests/methods/test_udlm.py::test_the_closed_form_is_the_bound \
	tests/methods/test_csm.py::test_loss_by_loops \
	tests/models/test_checkpoint.py::test_round_trip \
	$(addprefix tests/cli/test_cli.py::test_,train_says_what_it_does evaluate sample report wrong_options)
check: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(CHECK) $(ARGS)

# Two workers, one thread each: small tensors gain nothing from a second thread. A worker keeps the tests of a file, and so what
# they share, until the other has none left: of 30 fixtures of a file 33 are made (41 with --dist load).
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-long: .venv/test.stamp
	OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -m "long or compile" $(ARGS)

# A GPU against the CPU, then a page of figures in benchmarks/. Where there is none a line says so, and nothing fails.
gpu: .venv/test.stamp
	if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		$(BIN)/python -m pytest -m gpu tests/gpu && $(BIN)/python benchmarks/gpu.py $(ARGS); \
	else echo "make gpu: no GPU that torch can use here; nothing was tested or measured"; fi

# ARGS="--trials 500 --seed 1 --family calls"; every failure prints the line that does it again.
fuzz: .venv/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz $(ARGS)

# ARGS="--count 300 --seed 0 --package core nn"; the same command continues where it was stopped.
mutants: .venv/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants $(ARGS)

lint: .venv/test.stamp
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet . || { echo "not formatted; make format repairs it" >&2; exit 1; }
	$(BIN)/codespell
	out=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$out" >&2; exit 1; }
	$(BIN)/pyright

format: .venv/test.stamp
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

# What tests hold equal to the code. Not here: outputs of commands and samples of models (outputs.py, samples.py; minutes), and
# pictures of models and of a browser (learn.py, play_picture.py).
generate: .venv/test.stamp
	for tool in lists samples results_pictures; do \
		$(BIN)/python docs/_tools/$$tool.py $$(test $$tool != samples || echo --page) || exit 1; done

docs: .venv/docs.stamp
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build
	echo docs/_build/index.html

# The same bytes from the same commit: the times in the archives are the commit's.
wheel: .venv/run.stamp
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist

clean:
	rm -rf .venv dist docs/_build .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; name one: make PYTHON=/path/to/python3" >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	echo "installing into .venv (once; a minute or two)"
	$(INSTALL) hatchling editables
	$(INSTALL) -e .
	touch $@

# All at once, so that pip resolves once; of the bytecode only what is imported is made, when it is. One of the packages that
# lm-evaluation-harness needs comes as sources alone, which a new setuptools builds and that of Python 3.11 does not.
.venv/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	echo "installing Zellige and the tools for tests into .venv (once; two minutes)"
	$(INSTALL) hatchling editables setuptools
	$(INSTALL) --no-compile -e '.[test,dev]'
	touch .venv/run.stamp $@

.venv/docs.stamp: .venv/run.stamp
	echo "installing the tools for the documentation into .venv (once)"
	$(INSTALL) -e '.[docs]'
	touch $@
