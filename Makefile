# One word per job. PYTHON may point at another environment.
PYTHON ?= .venv/bin/python

.PHONY: check test

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -m "not slow"
	$(PYTHON) -m pytest -m slow
