"""In one decode bucket a request's logits do not depend on its slot, nor on who shares the batch: not by one bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llmpack.artifact.reader import Artifact
from llmpack.runtime.chunk_plan import plan_chunks
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.load import load_engine, load_runner
from llmpack.runtime.request import GenerationRequest, Sampling, SequenceOutput
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, Runner
from tests.golden.cases import CASES, COMPILES_LIBRARIES
from tests.runtime.letters import merge_by_id

pytestmark = [pytest.mark.slow, pytest.mark.compile]

BATCH_SIZE = 8
VOCAB_SIZE = 97
PROMPT = tuple(range(3, 30))
FORCED = tuple(range(40, 56))
MAX_SEQ_LEN = 128  # Two multiples of what inductor reads a slot by, so that company can make it read further.
RUNS = [
    ("llama-plain", "onnxruntime", "float32"),
    ("gemma3_text-alternating", "onnxruntime", "float32"),
    pytest.param(("llama-plain", "inductor", "bfloat16"), marks=COMPILES_LIBRARIES),
]


@pytest.fixture(scope="module", params=RUNS, ids=":".join)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    from llmpack.compiler.compile import compile_model
    from llmpack.plan.options import CompileOptions
    from tests.golden.models import write_model

    name, engine, dtype = request.param
    directory: Path = tmp_path_factory.mktemp("bits")
    write_model(next(case for case in CASES if case.name == name), directory / "checkpoint")
    options = CompileOptions(
        model=str(directory / "checkpoint"),
        output=directory / "artifact",
        engine=engine,
        dtype=dtype,
        max_seq_len=MAX_SEQ_LEN,
        batch_size=BATCH_SIZE,
        prefill_buckets=(8, 16),
        decode_buckets=(BATCH_SIZE,),
        proof=engine == "inductor",
    )
    return compile_model(options)


def prefill(runner: Runner, slot: int, token_ids: tuple[int, ...]) -> Iterator[bytes]:
    """Writes a prompt, yielding the logits of each chunk between chunks."""
    for span in plan_chunks(len(token_ids), runner.shape):
        chunk = PrefillChunk(slot, span.start, token_ids[span.start : span.end], span.bucket)
        yield runner.prefill(chunk).last.tobytes()


def play(runner: Runner, slot: int, rng: random.Random | None) -> list[bytes]:
    """The logits of a fixed sequence in `slot`; with a generator, other slots prefill and decode around it."""
    lengths = [0] * BATCH_SIZE
    company = (lambda: None) if rng is None else disturbance(runner, slot, lengths, rng)
    seen = []
    for logits in prefill(runner, slot, PROMPT):
        seen.append(logits)
        company()
    lengths[slot] = len(PROMPT)
    for token_id in FORCED:
        ids = [0 if rng is None else rng.randrange(VOCAB_SIZE) for _ in range(BATCH_SIZE)]
        ids[slot] = token_id
        seen.append(runner.decode(DecodeBatch(0, BATCH_SIZE, ids, lengths))[slot].tobytes())
        lengths[slot] += 1
        company()
    return seen


def disturbance(runner: Runner, slot: int, lengths: list[int], rng: random.Random) -> Callable[[], None]:
    """Lets some other slot start a new prompt, grow, or leave."""

    def disturb() -> None:
        other = rng.choice([index for index in range(BATCH_SIZE) if index != slot])
        if rng.random() < 0.6:
            prompt = tuple(rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, MAX_SEQ_LEN - 1)))
            for _ in prefill(runner, other, prompt):
                pass
            lengths[other] = len(prompt)
        else:
            lengths[other] = 0

    return disturb


@pytest.mark.parametrize("seed", range(4))
def test_logits_are_bit_equal_in_any_slot_and_company(artifact: Artifact, seed: int) -> None:
    runner = load_runner(artifact.path, artifact.manifest)
    alone = play(runner, slot=0, rng=None)
    rng = random.Random(seed)
    assert play(runner, rng.randrange(BATCH_SIZE), rng) == alone
    assert play(load_runner(artifact.path, artifact.manifest), slot=seed, rng=None) == alone


def random_request(rng: random.Random, name: str) -> GenerationRequest:
    prompt = tuple(rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 40)))
    sampling = Sampling(
        temperature=rng.choice([0.0, 0.7, 1.3]),
        top_k=rng.choice([0, 20]),
        top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.2]),
        seed=rng.randrange(2**32),
    )
    return GenerationRequest(name, prompt, sampling, max_tokens=rng.randint(1, 20), num_logprobs=5)


def run(engine: Engine, requests: list[GenerationRequest], rng: random.Random) -> dict[str, SequenceOutput]:
    """Runs requests that arrive in random steps."""
    outputs: list[SequenceOutput] = []
    waiting = list(requests)
    while waiting or engine.has_work:
        while waiting and rng.random() < 0.4:
            engine.add(waiting.pop(0))
        outputs += engine.step()
    return merge_by_id(outputs)


def test_seeded_requests_are_equal_alone_and_in_company(artifact: Artifact) -> None:
    rng = random.Random(7)
    requests = [random_request(rng, f"r{index}") for index in range(30)]
    together = run(load_engine(artifact, num_threads=1), requests, rng)
    alone = load_engine(artifact, num_threads=1)
    for request in requests:
        expected = run(alone, [request], rng)[request.request_id]
        given = together[request.request_id]
        assert given.token_ids == expected.token_ids
        assert given.logprobs == expected.logprobs
        assert given.text == expected.text


def test_a_reused_beginning_changes_no_bit(artifact: Artifact) -> None:
    """The same system prompt, conversations that go on, equal prompts: by copy and in place."""
    rng = random.Random(11)
    trunks = [tuple(rng.randrange(VOCAB_SIZE) for _ in range(length)) for length in (16, 35, 40)]
    requests = []
    for index in range(24):
        base = random_request(rng, f"r{index}")
        requests.append(replace(base, prompt_ids=(*rng.choice(trunks), *base.prompt_ids[: rng.randint(0, 4)])))
    reusing = load_engine(artifact, num_threads=1)
    together = run(reusing, requests, rng)
    computing = load_engine(artifact, EngineOptions(reuses_prefixes=False), num_threads=1)
    for request in requests:
        expected = run(computing, [request], rng)[request.request_id]
        assert together[request.request_id].token_ids == expected.token_ids
        assert together[request.request_id].logprobs == expected.logprobs
    assert reusing.metrics.snapshot().prefix_cache_hits > 300
    assert computing.metrics.snapshot().prefix_cache_hits == 0


def test_the_logits_do_differ_between_sequences(artifact: Artifact) -> None:
    """Guards the tests above: a runner that ignored its input would pass them."""
    runner = load_runner(artifact.path, artifact.manifest)
    first, second = (list(prefill(runner, 0, PROMPT[:n]))[-1] for n in (10, 11))
    assert not np.array_equal(np.frombuffer(first, np.float32), np.frombuffer(second, np.float32))
