"""llama.cpp through llama-cpp-python's C functions: sequences of any state in one batch, as its own server does it.

python llama_cpp_driver.py FILE.gguf SLOTS MAX_SEQ_LEN
"""

from __future__ import annotations

import os
import sys
from collections import deque

import llama_cpp as lib
import numpy as np
from protocol import Job, answer_requests

_BATCH_TOKENS = 512  # llama.cpp's physical batch
_ERROR_LEVEL = 4  # of ggml's log
Row = tuple[int, int, int, bool]  # token, position, sequence, whether its logits are wanted


@lib.llama_log_callback
def log_errors(level: int, text: bytes, _data: object) -> None:
    """Passes on errors alone: llama.cpp prints every tensor of the graph otherwise."""
    if level == _ERROR_LEVEL:
        sys.stderr.write(text.decode("utf-8", "replace"))


class Model:
    """A loaded model and its cache."""

    def __init__(self, path: str, slots: int, max_seq_len: int) -> None:
        lib.llama_log_set(log_errors, None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"error: llama.cpp cannot load {path}")
        params = lib.llama_context_default_params()
        params.n_ctx = slots * max_seq_len
        params.n_seq_max = slots
        params.n_batch = params.n_ubatch = _BATCH_TOKENS
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        self.context = lib.llama_init_from_model(self.model, params)
        self.num_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(_BATCH_TOKENS, 0, 1)

    def decode(self, rows: list[Row]) -> dict[int, int]:
        """Runs the rows and returns the likeliest next token of each sequence whose logits were wanted."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, is_wanted) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = is_wanted
        if lib.llama_decode(self.context, batch) != 0:
            raise SystemExit("error: llama_decode failed")
        return {row[2]: self._greedy(index) for index, row in enumerate(rows) if row[3]}

    def forget(self, sequence: int) -> None:
        """Frees a sequence's cache."""
        lib.llama_memory_seq_rm(lib.llama_get_memory(self.context), sequence, -1, -1)

    def _greedy(self, index: int) -> int:
        logits = lib.llama_get_logits_ith(self.context, index)
        return int(np.ctypeslib.as_array(logits, (self.num_vocab,)).argmax())


class Running:
    """A job in a slot: what of its prompt is to be computed, or its last token."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pending = deque(job.prompt_ids)
        self.position = 0

    def take_rows(self, sequence: int, room: int) -> list[Row]:
        """As many rows as fit."""
        rows: list[Row] = []
        while self.pending and len(rows) < room:
            token = self.pending.popleft()
            rows.append((token, self.position, sequence, not self.pending))
            self.position += 1
        return rows


def run_jobs(model: Model, jobs: list[Job], concurrency: int) -> None:
    """Keeps so many slots busy until all jobs are done; running outputs go before prompts."""
    waiting = deque(jobs)
    running: dict[int, Running] = {}
    while waiting or running:
        for slot in range(concurrency):
            if slot not in running and waiting:
                running[slot] = Running(waiting.popleft())
        rows: list[Row] = []
        for slot, each in sorted(running.items(), key=lambda item: len(item[1].pending)):
            rows += each.take_rows(slot, _BATCH_TOKENS - len(rows))
        for slot, token in model.decode(rows).items():
            each = running[slot]
            each.job.note_token()
            each.pending.append(token)
            if each.job.is_done:
                model.forget(slot)
                del running[slot]


def main(path: str, slots: str, max_seq_len: str) -> None:
    """Loads the model and answers."""
    model = Model(path, int(slots), int(max_seq_len))
    answer_requests(lambda jobs, concurrency: run_jobs(model, jobs, concurrency))


if __name__ == "__main__":
    main(*sys.argv[1:])
