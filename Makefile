# Everything from a fresh clone. `make demo` and `make test` make the environment first.
#
# Variables: PYTHON (Python 3.11 or 3.12 to make the environment with), VENV (where it lies).

PYTHON ?=
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
# DeepSpeed builds an operator on first use and looks for ninja on PATH.
RUN := PATH="$(BIN):$$PATH" $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-long chaos lint format proto

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

setup: ## Make the CPU environment in VENV; does nothing once it is complete.
	@PYTHON='$(PYTHON)' VENV='$(VENV)' cluster/setup_cpu.sh

demo: setup ## Train a tiny vision-language model on digits; results in runs/demo.
	$(RUN) launch/ppo_vl.py --config launch/configs/digits_grpo.yaml \
		--output_dir runs/demo --overwrite_output true

test: lint ## Run lint and the CPU tests, up to the first failure; a quarter of an hour.
	$(RUN) -m pytest tests/unit
	$(RUN) -m pytest tests/pages
	$(RUN) -m pytest tests/integration -m "not slow and not long"

test-slow: setup ## Run the whole runs that `make test` leaves out; five minutes.
	$(RUN) -m pytest tests/integration -m slow

test-long: setup ## Run more model families, tasks, rewards and whole runs; eight minutes.
	$(RUN) -m pytest tests/integration -m long

chaos: setup ## Kill and stop processes of whole runs; takes an hour.
	$(RUN) -m pytest tests/chaos

lint: setup ## Check style, format, types and the layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Fix style and format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup ## Renew the Python made of the reward protocol.
	$(RUN) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
		lightrft_ray/rewards/proto/reward.proto
