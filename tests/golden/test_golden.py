"""Every architecture row, through the real compiler, against transformers, on both engines.

A row takes the C++ compiler a minute or two. So inductor's libraries are computed by torch (`eager_libraries`) but for
the row in COMPILED, whose model has two kinds of layers with windows, softcaps, sandwich norms and qk norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmpack.architectures.rows import ROWS
from llmpack.artifact.manifest import LOGITS_PATH
from llmpack.artifact.reader import Artifact
from llmpack.proof.report import find_report
from llmpack.proof.rows import RowProgram
from llmpack.runtime.chunk_plan import plan_chunks
from llmpack.runtime.load import load_runner
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, Runner
from tests.golden.cases import (
    BATCH_SIZE,
    CASES,
    COMPILES_LIBRARIES,
    DECODE_BUCKETS,
    MAX_SEQ_LEN,
    PREFILL_BUCKETS,
    WINDOW,
    GoldenCase,
)
from tests.runtime.letters import generate
from tests.runtime.shapes import make_request

pytestmark = [pytest.mark.slow, pytest.mark.compile]

COMPILED = "gemma3_text-alternating"
RUNS = [
    *((case, "onnxruntime") for case in CASES),
    *((case, "eager") for case in CASES),
    *(pytest.param((case, "inductor"), marks=COMPILES_LIBRARIES) for case in CASES if case.name == COMPILED),
]
TOLERANCE = 2e-5  # Of the largest logit: float32 rounding through four layers.


def test_every_row_has_a_case() -> None:
    assert {case.model_type for case in CASES} == set(ROWS)


def test_dimensions_differ() -> None:
    for case in CASES:
        config = {name: value for name, value in case.config.items() if name != "max_position_embeddings"}
        sizes = [value for name, value in config.items() if name.endswith(("size", "_dim")) and value]
        assert len(set(sizes)) == len(sizes), case.name


@dataclass
class Golden:
    """A compiled case beside its reference."""

    case: GoldenCase
    model: Any
    artifact: Artifact
    runner: Runner

    @property
    def pad_to(self) -> int:
        """Length at which transformers picks the rope table that was compiled in; 0 when there is one only."""
        return (
            self.case.config["original_max_position_embeddings"] + 1
            if self.artifact.manifest.rope_table == "long"
            else 0
        )

    def reference(self, token_ids: list[int]) -> np.ndarray:
        from tests.golden.models import whole_logits

        return whole_logits(self.model, token_ids, self.pad_to)

    def prefill(self, slot: int, token_ids: list[int]) -> np.ndarray:
        """[len(token_ids), V] logits of a prompt, chunk by chunk."""
        rows: dict[int, np.ndarray] = {}
        for span in plan_chunks(len(token_ids), self.runner.shape):
            ids = tuple(token_ids[span.start : span.end])
            result = self.runner.prefill(PrefillChunk(slot, span.start, ids, span.bucket, all_logits=True))
            assert result.all is not None
            np.testing.assert_allclose(result.last, result.all[-1], rtol=0, atol=1e-4)
            rows.update(zip(range(span.start, span.end), result.all, strict=True))
        return np.stack([rows[position] for position in range(len(token_ids))])

    def decode(self, slot: int, token_id: int, position: int, bucket: int) -> np.ndarray:
        first = min(slot, BATCH_SIZE - bucket)
        ids, lengths = [0] * bucket, [0] * bucket
        ids[slot - first], lengths[slot - first] = token_id, position
        return np.array(self.runner.decode(DecodeBatch(first, bucket, ids, lengths))[slot - first])


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run[0].name}-{run[1]}")
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    from tests.golden.eager_libraries import eager_libraries

    case, engine = request.param
    with eager_libraries() if engine == "eager" else nullcontext():
        yield build_golden(case, tmp_path_factory.mktemp(case.name), "inductor" if engine == "eager" else engine)


def build_golden(case: GoldenCase, directory: Path, engine: str) -> Golden:
    from llmpack.compiler.compile import compile_model
    from llmpack.plan.options import CompileOptions
    from tests.golden.models import write_model

    model = write_model(case, directory / "checkpoint")
    options = CompileOptions(
        model=str(directory / "checkpoint"),
        output=directory / "artifact",
        max_seq_len=MAX_SEQ_LEN,
        batch_size=BATCH_SIZE,
        prefill_buckets=PREFILL_BUCKETS,
        decode_buckets=DECODE_BUCKETS,
        engine=engine,
        dtype="float32",
        logits=engine == "onnxruntime",
    )
    artifact = compile_model(options)
    return Golden(case, model, artifact, load_runner(artifact.path, artifact.manifest, num_threads=1))


def tokens(count: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, 97, count)]


def assert_close(given: np.ndarray, reference: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(reference).max()))
    assert float(np.abs(given - reference).max()) <= TOLERANCE * scale


def test_the_compile_proved_it(golden: Golden) -> None:
    report = find_report(golden.artifact.path)
    assert report is not None
    assert report.passed
    ran = {program for case in report.cases for program in case.programs}
    slots = {f"prefill-{b}" for b in PREFILL_BUCKETS} | {f"decode-{b}" for b in DECODE_BUCKETS}
    rows = {"logits"} if golden.artifact.manifest.engine == "onnxruntime" else set()
    assert slots | {"head"} | rows <= ran


@pytest.mark.parametrize("length", [1, 5, 8, 13, 16], ids=lambda n: f"prompt-{n}")
def test_prefill_in_each_bucket(golden: Golden, length: int) -> None:
    ids = tokens(length, seed=length)
    assert_close(golden.prefill(1, ids), golden.reference(ids))


def test_prefill_across_chunks_in_a_used_slot(golden: Golden) -> None:
    longest = tokens(60, seed=1)
    assert_close(golden.prefill(0, longest), golden.reference(longest))
    shorter = tokens(21, seed=2)
    assert_close(golden.prefill(0, shorter), golden.reference(shorter))


def test_prefill_to_the_very_end_of_a_slot(golden: Golden) -> None:
    ids = tokens(MAX_SEQ_LEN, seed=3)
    assert_close(golden.prefill(2, ids), golden.reference(ids))


def row_program(golden: Golden) -> RowProgram:
    if golden.artifact.manifest.engine != "onnxruntime":
        pytest.skip("the program `logits` is an ONNX model")
    return RowProgram(golden.artifact.path / LOGITS_PATH)


@pytest.mark.parametrize("pads_left", [True, False], ids=["padded-left", "padded-right"])
def test_whole_rows_beside_each_other_are_each_as_alone(golden: Golden, pads_left: bool) -> None:
    rows = [tokens(count, seed=count) for count in (MAX_SEQ_LEN, 1, 23)]
    program = row_program(golden)
    for row, logits in zip(rows, program.run(rows, pads_left=pads_left), strict=True):
        assert_close(logits, golden.reference(row))


def test_left_padding_is_what_transformers_computes_from_the_same_mask(golden: Golden) -> None:
    from tests.golden.models import masked_logits

    rows = [tokens(count, seed=count) for count in (40, 17)]
    if golden.pad_to:
        pytest.skip("transformers picks the rope table by the length of the batch")
    given = row_program(golden).run(rows, pads_left=True)
    for logits, reference in zip(given, masked_logits(golden.model, rows), strict=True):
        assert_close(logits, reference)


@pytest.mark.parametrize("bucket", DECODE_BUCKETS, ids=lambda b: f"bucket-{b}")
def test_prefill_then_decode_is_the_whole(golden: Golden, bucket: int) -> None:
    ids, prompt_len = tokens(40, seed=bucket), 19
    rows = [*golden.prefill(1, ids[:prompt_len])]
    rows += [golden.decode(1, ids[position], position, bucket) for position in range(prompt_len, len(ids))]
    assert_close(np.stack(rows), golden.reference(ids))


def test_greedy_ids_are_those_of_generate(golden: Golden) -> None:
    from llmpack.runtime.load import load_engine
    from tests.golden.models import greedy_ids

    engine = load_engine(golden.artifact, num_threads=1)
    prompts = {f"r{n}": tokens(n, seed=n) for n in (3, 9, 17, 30, 33)}
    requests = [make_request(name, tuple(ids), max_tokens=24) for name, ids in prompts.items()]
    outputs = generate(engine, requests)
    for name, ids in prompts.items():
        assert list(outputs[name].token_ids) == greedy_ids(golden.model, ids, 24, golden.pad_to), name


def test_the_window_shows(golden: Golden) -> None:
    """Beyond the windows of all layers an early token no longer matters; one full layer is enough to make it."""
    layers = len(golden.artifact.manifest.kv_cache.layers)
    kinds = {layer.kind for layer in golden.artifact.manifest.kv_cache.layers}
    assert ("sliding" in kinds) == golden.case.windowed
    length = WINDOW * layers + 2
    ids = tokens(length, seed=5)
    other = [(ids[0] + 1) % 97, *ids[1:]]
    changed = bool(np.abs(golden.prefill(0, ids)[-1] - golden.prefill(0, other)[-1]).max() > 0)
    assert changed == ("full" in kinds)
