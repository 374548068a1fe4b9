# make demo       sets up everything and runs the main job on a real Kubernetes on this machine
# make test       sets up everything and passes the tests
# make lint       ruff, mypy strict, import contracts
# make manifests  writes what is generated: the CRDs, their templates, install.yaml, the dashboard
# make docs       the documentation as a site, in build/site, with every link checked
# make images     builds both images with buildah and runs them on the local cluster (some minutes)
# make demo-down  removes what the demo made: objects, cluster, links, mounts
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-down test lint manifests docs images clean
SHELL := /bin/bash
export OMP_NUM_THREADS ?= 1
PYTHON ?= python3
BIN := .venv/bin

help:
	@sed -n 's/^# //p' Makefile

setup: .venv/ready

# The stamp is written last: an interrupted setup is not taken for a finished one.
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("stowplan needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + "; set PYTHON=") if sys.version_info < (3, 11) else 0'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (about 6 GiB, most of it torch; some minutes the first time) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[operator,agent,dev]'
	@touch $@

demo: setup
	@PYTHONPATH=tests $(BIN)/python examples/demo.py up

demo-down: setup
	@PYTHONPATH=tests $(BIN)/python examples/demo.py down

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy crds operator/stowplan_operator node_agent/stowplan_agent
	@$(BIN)/lint-imports

test: setup lint
	@$(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder tests

manifests: setup
	@$(BIN)/python -m stowplan_api
	@PYTHONPATH=tests $(BIN)/python -m localcluster.install_manifest
	@PYTHONPATH=charts $(BIN)/python -m dashboard

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

images: setup
	@STOWPLAN_IMAGES=1 $(BIN)/python -m pytest tests/cluster/test_images.py tests/cluster/test_agent_image.py

clean:
	rm -rf .venv build .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
