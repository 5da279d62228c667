# One word per job. PYTHON may point at another environment.
PYTHON ?= .venv/bin/python

.PHONY: check test bench bench-triton bench-peers

# What is measured: an artifact, and the checkpoint directory that it was compiled from.
ARTIFACT ?= .bench/smollm2-135m
CHECKPOINT ?= .bench/checkpoints/smollm2-135m
BENCH ?=

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -m "not slow"
	$(PYTHON) -m pytest -m slow

bench: $(ARTIFACT)
	$(PYTHON) -m llmpack bench $(ARTIFACT) $(BENCH)

bench-triton: $(ARTIFACT)
	test -d .venv-triton/lib/python3.11/site-packages/torch || scripts/triton-environment --with-transformers
	PATH=$(CURDIR)/.venv-triton/bin:$$PATH TRITONSERVER=$(CURDIR)/scripts/triton-server \
	    $(PYTHON) -m llmpack bench $(ARTIFACT) --triton $(CHECKPOINT) $(BENCH)

bench-peers:
	$(PYTHON) benchmarks/run.py $(BENCH)

.bench/checkpoints/%:
	$(PYTHON) benchmarks/random_checkpoint.py $* $@

.bench/%: .bench/checkpoints/%
	$(PYTHON) -m llmpack compile $< -o $@ --max-seq-len 2048 --batch-size 16 --decode-buckets 1,4,8,16
