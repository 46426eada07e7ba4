"""Measurements of the engine, run by hand on a quiet machine: `python -m benchmarks --help`."""
