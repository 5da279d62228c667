"""OpenVINO GenAI: its continuous batching pipeline, stepped by hand.

python openvino_genai_driver.py MODEL DTYPE     MODEL is what `optimum-cli export openvino` wrote
"""

from __future__ import annotations

import sys

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import Job, answer_requests

_PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
_CACHE_GIB = 2


def build_pipeline(model: str, dtype: str, concurrency: int) -> genai.ContinuousBatchingPipeline:
    """A pipeline that runs so many sequences at a time."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_seqs = concurrency
    scheduler.cache_size = _CACHE_GIB
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    properties = {"INFERENCE_PRECISION_HINT": _PRECISIONS[dtype]}
    return genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)


def build_config(num_tokens: int) -> genai.GenerationConfig:
    """Greedy, exactly so many tokens."""
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = num_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def run_jobs(pipeline: genai.ContinuousBatchingPipeline, jobs: list[Job]) -> None:
    """Adds all and steps until the last is done."""
    handles = []
    for index, job in enumerate(jobs):
        prompt = ov.Tensor(np.array([job.prompt_ids], dtype=np.int64))
        handles.append(pipeline.add_request(index, prompt, build_config(job.max_tokens)))
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for job, handle in zip(jobs, handles, strict=True):
            while handle.can_read():
                for output in handle.read().values():
                    for _ in output.generated_ids:
                        job.note_token()


def main(model: str, dtype: str) -> None:
    """Loads the model and answers; a pipeline has a fixed number of sequences, so each number has its own."""
    pipelines: dict[int, genai.ContinuousBatchingPipeline] = {}

    def run(jobs: list[Job], concurrency: int) -> None:
        run_jobs(pipelines[concurrency], jobs)

    def prepare_and_run(jobs: list[Job], concurrency: int) -> None:
        if concurrency not in pipelines:  # in the round that does not count
            pipelines.clear()
            pipelines[concurrency] = build_pipeline(model, dtype, concurrency)
        run(jobs, concurrency)

    answer_requests(prepare_and_run)


if __name__ == "__main__":
    main(*sys.argv[1:])
