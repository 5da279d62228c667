"""How a prompt is cut into prefill chunks.

The plan depends on the prompt's length and the compiled shapes alone, never on load, so that a prompt runs through
the same programs in the same order whoever shares the batch, and its logits are bit-equal every time.

    buckets 32 and 128, max_seq_len 320

    prompt of 150:  |0 ------------- 128|128 -- 150..160|          full 128, then 22 tokens in a bucket of 32
    prompt of 300:  |0 --- 128|  128 --- 256|
                              |192 -------- 300..320|              the last chunk would end at 384: it starts at 192
"""

from __future__ import annotations

from dataclasses import dataclass

from llmpack.runtime.runner import RunnerShape


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Part of a prompt, in positions.

    Attributes:
        start: First position.
        end: One past the last position.
        bucket: The compiled length that runs it; end - start <= bucket and start + bucket <= max_seq_len.
    """

    start: int
    end: int
    bucket: int


def plan_chunks(prompt_len: int, shape: RunnerShape) -> tuple[ChunkSpan, ...]:
    """The chunks of a prompt of `prompt_len` tokens, in order, 1 <= prompt_len <= max_seq_len.

    Full chunks of the largest bucket come first, then the rest in the smallest bucket that holds it. Where that would
    reach past max_seq_len, the last chunk starts earlier and writes some positions a second time.
    """
    largest = shape.prefill_buckets[-1]
    rest_start = prompt_len - prompt_len % largest
    spans = [ChunkSpan(start, start + largest, largest) for start in range(0, rest_start, largest)]
    if rest_start < prompt_len:
        bucket = next(size for size in shape.prefill_buckets if size >= prompt_len - rest_start)
        start = min(rest_start, shape.max_seq_len - bucket)
        spans.append(ChunkSpan(start, prompt_len, bucket))
    return tuple(spans)
