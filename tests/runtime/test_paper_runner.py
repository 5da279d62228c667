from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmpack.runtime.paper_runner import PaperRunner, paper_logits
from llmpack.runtime.runner import DecodeBatch, PrefillChunk, RunnerShape

SHAPE = RunnerShape(4, 32, 97, prefill_buckets=(4, 16), decode_buckets=(1, 2, 4))
CHUNK = PrefillChunk(slot=1, start=0, token_ids=(5, 6, 7), bucket=4)
BATCH = DecodeBatch(first_slot=0, bucket=2, token_ids=[0, 9], lengths=[0, 3])


def test_logits_depend_on_the_whole_prefix_and_on_nothing_else() -> None:
    runner = PaperRunner(SHAPE)
    assert np.array_equal(runner.prefill(CHUNK).last, paper_logits((5, 6, 7), 97))
    assert np.array_equal(runner.decode(BATCH)[1], paper_logits((5, 6, 7, 9), 97))
    assert not np.array_equal(paper_logits((5, 6, 7), 97), paper_logits((4, 6, 7), 97))
    logits = paper_logits((5, 6, 7), 97)
    assert logits.dtype == np.float32
    assert logits.min() >= 0.0
    assert logits.max() < 8.0


def test_all_logits_are_those_of_every_position() -> None:
    result = PaperRunner(SHAPE).prefill(replace(CHUNK, all_logits=True))
    assert result.all is not None
    assert np.array_equal(result.all, np.stack([paper_logits((5, 6, 7)[:count], 97) for count in (1, 2, 3)]))
    assert np.array_equal(result.last, result.all[-1])


def test_a_script_decides_what_follows() -> None:
    runner = PaperRunner(SHAPE, script={7: 11, 11: 12})
    assert runner.prefill(CHUNK).last.argmax() == 11
    assert runner.decode(replace(BATCH, token_ids=[0, 11]))[1].argmax() == 12


def test_logits_of_a_decode_do_not_outlive_the_next_call() -> None:
    runner = PaperRunner(SHAPE)
    runner.prefill(CHUNK)
    logits = runner.decode(BATCH)
    runner.decode(replace(BATCH, lengths=[0, 4]))
    assert np.isnan(logits).all()


@pytest.mark.parametrize(
    "change",
    [
        {"slot": 4},
        {"slot": -1},
        {"start": 1},
        {"start": 30},
        {"token_ids": ()},
        {"token_ids": (1, 2, 3, 4, 5)},
        {"token_ids": (1, 97)},
        {"bucket": 5},
    ],
)
def test_a_broken_chunk_is_caught(change: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        PaperRunner(SHAPE).prefill(replace(CHUNK, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"first_slot": 3},
        {"first_slot": -1},
        {"bucket": 3},
        {"token_ids": [0]},
        {"token_ids": [0, -1]},
        {"lengths": [0, 3, 0]},
        {"lengths": [0, 32]},
        {"lengths": [0, 4]},
        {"lengths": [1, 3]},
    ],
)
def test_a_broken_batch_is_caught(change: dict[str, object]) -> None:
    runner = PaperRunner(SHAPE)
    runner.prefill(CHUNK)
    with pytest.raises(AssertionError):
        runner.decode(replace(BATCH, **change))  # type: ignore[arg-type]


def test_a_new_sequence_does_not_see_what_the_last_one_left() -> None:
    runner = PaperRunner(SHAPE)
    runner.prefill(CHUNK)
    runner.prefill(replace(CHUNK, token_ids=(8,)))
    with pytest.raises(AssertionError, match="unwritten"):
        runner.decode(BATCH)
