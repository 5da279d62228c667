from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.runtime.chunk_plan import ChunkSpan, plan_chunks
from llmpack.runtime.runner import RunnerShape
from tests.runtime.shapes import runner_shapes


@given(st.data(), runner_shapes(max_seq_len=300))
def test_a_plan_covers_every_prompt_exactly_and_stays_inside_the_slot(data: st.DataObject, shape: RunnerShape) -> None:
    prompt_len = data.draw(st.integers(1, shape.max_seq_len))
    spans = plan_chunks(prompt_len, shape)
    covered = 0
    for span in spans:
        assert 0 <= span.start <= covered < span.end, "no gap, and every chunk brings something new"
        assert span.end - span.start <= span.bucket
        assert span.bucket in shape.prefill_buckets
        assert span.start + span.bucket <= shape.max_seq_len
        covered = span.end
    assert covered == prompt_len


@given(st.data(), runner_shapes(max_seq_len=300))
def test_only_the_last_chunk_may_be_smaller_and_its_bucket_is_the_smallest_that_fits(
    data: st.DataObject, shape: RunnerShape
) -> None:
    prompt_len = data.draw(st.integers(1, shape.max_seq_len))
    *full, last = plan_chunks(prompt_len, shape)
    largest = shape.prefill_buckets[-1]
    assert full == [ChunkSpan(index * largest, (index + 1) * largest, largest) for index in range(len(full))]
    rest = prompt_len - len(full) * largest
    assert last.bucket == min(bucket for bucket in shape.prefill_buckets if bucket >= rest)


@pytest.mark.parametrize(
    ("prompt_len", "spans"),
    [
        (1, [(0, 1, 32)]),
        (32, [(0, 32, 32)]),
        (33, [(0, 33, 128)]),
        (128, [(0, 128, 128)]),
        (150, [(0, 128, 128), (128, 150, 32)]),
        (256, [(0, 128, 128), (128, 256, 128)]),
        (300, [(0, 128, 128), (128, 256, 128), (192, 300, 128)]),
        (320, [(0, 128, 128), (128, 256, 128), (192, 320, 128)]),
    ],
)
def test_known_plans(prompt_len: int, spans: list[tuple[int, int, int]]) -> None:
    shape = RunnerShape(1, 320, 10, prefill_buckets=(32, 128), decode_buckets=(1,))
    assert list(plan_chunks(prompt_len, shape)) == [ChunkSpan(*span) for span in spans]
