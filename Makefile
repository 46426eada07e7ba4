# Each target is one Python command, so that a system without make can give the same: see README.md.
# ARGS goes to the command: make demo ARGS=--once, make test ARGS="tests/engine -x". MODEL chooses the demo's model:
# make demo MODEL=smollm2.
PYTHON ?= python3

.PHONY: help demo test fuzz lint model vocabulary environment

help:
	@$(PYTHON) -m deploy --help

demo:
	@$(PYTHON) -m deploy demo $(if $(MODEL),--model $(MODEL)) $(ARGS)

test fuzz lint model vocabulary environment:
	@$(PYTHON) -m deploy $@ $(ARGS)
