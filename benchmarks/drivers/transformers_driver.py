"""transformers: `generate` on padded batches, one batch after the other, as it has no continuous batching by default.

python transformers_driver.py CHECKPOINT DTYPE
"""

from __future__ import annotations

import sys

import torch
from protocol import Job, answer_requests
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class NoteTokens(StoppingCriteria):
    """Is asked after every token; never stops."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs

    def __call__(self, input_ids: torch.Tensor, _scores: object, **_: object) -> torch.Tensor:
        """Notes one token of each row that still wants one."""
        for job in self.jobs:
            if not job.is_done:
                job.note_token()
        return torch.zeros(len(input_ids), dtype=torch.bool)


@torch.inference_mode()
def generate_batch(model: torch.nn.Module, jobs: list[Job]) -> None:
    """One padded batch, until its longest output is done."""
    width = max(len(job.prompt_ids) for job in jobs)
    input_ids = torch.zeros(len(jobs), width, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, job in enumerate(jobs):
        input_ids[row, width - len(job.prompt_ids) :] = torch.tensor(job.prompt_ids)
        attention_mask[row, width - len(job.prompt_ids) :] = 1
    num_tokens = max(job.max_tokens for job in jobs)
    model.generate(
        input_ids, attention_mask=attention_mask, do_sample=False, max_new_tokens=num_tokens, eos_token_id=None,
        pad_token_id=0, stopping_criteria=StoppingCriteriaList([NoteTokens(jobs)]),
    )  # fmt: skip


def main(checkpoint: str, dtype: str) -> None:
    """Loads the model and answers."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype)).eval()

    def run(jobs: list[Job], concurrency: int) -> None:
        for start in range(0, len(jobs), concurrency):
            generate_batch(model, jobs[start : start + concurrency])

    answer_requests(run)


if __name__ == "__main__":
    main(*sys.argv[1:])
