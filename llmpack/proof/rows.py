"""The program `logits` in the proof: rows of several lengths in one call, padded on either side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from llmpack.artifact.consistency import ITEM_BYTES
from llmpack.errors import EngineError
from llmpack.plan.plan import CompilePlan
from llmpack.proof.cases import draw_tokens
from llmpack.proof.compare import TOLERANCES, Compared, compare_logits
from llmpack.proof.prove import Oracle, long_rope_length
from llmpack.proof.report import CaseResult

Logits = npt.NDArray[np.float32]

_MAX_LOGITS_BYTES = 1 << 26
"""A case answers with logits of every token, which a vocabulary of 262144 makes 1 MiB each: rows are cut to this."""


@dataclass(frozen=True, slots=True)
class RowCase:
    """Rows that go through the program in one call.

    Attributes:
        name: What it exercises.
        rows: Tokens of each row, of different lengths.
        pads_left: Padding stands before the tokens, else after them.
    """

    name: str
    rows: tuple[tuple[int, ...], ...]
    pads_left: bool

    @property
    def num_positions(self) -> int:
        """Real tokens of all rows."""
        return sum(map(len, self.rows))


class RowProgram:
    """The program `logits` of an artifact, as others load it: by its path alone.

    Args:
        path: The ONNX file; it finds the weights from where it lies.

    Raises:
        EngineError: ONNX Runtime cannot load it.
    """

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_prepacking", "1")  # no second copy of the weights
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its exceptions have no common base of their own
            raise EngineError("ONNX Runtime cannot load the program", where=str(path), given=str(error)) from error

    def run(self, rows: Sequence[Sequence[int]], *, pads_left: bool) -> list[Logits]:
        """Returns the [len(row), V] logits of each row, computed in one call with token 0 as padding."""
        longest = max(map(len, rows))
        starts = [longest - len(row) if pads_left else 0 for row in rows]
        input_ids, attention_mask = np.zeros((2, len(rows), longest), np.int64)
        for index, (row, start) in enumerate(zip(rows, starts, strict=True)):
            input_ids[index, start : start + len(row)] = row
            attention_mask[index, start : start + len(row)] = 1
        (logits,) = self._session.run(["logits"], {"input_ids": input_ids, "attention_mask": attention_mask})
        return [
            logits[index, start : start + len(row)] for index, (row, start) in enumerate(zip(rows, starts, strict=True))
        ]


def build_row_cases(plan: CompilePlan) -> list[RowCase]:
    """Returns the cases of the program `logits`; none where the plan has no such program."""
    if not plan.logits:
        return []
    windows = {layer.attention.window for layer in plan.spec.layers} - {None}
    wanted = max([plan.prefill_buckets[0], *((window or 0) + 2 for window in windows)])
    affordable = _MAX_LOGITS_BYTES // (3 * ITEM_BYTES["float32"] * plan.spec.vocab_size)
    longest = max(2, min(wanted, plan.max_seq_len, affordable))
    lengths = (longest, 1, max(1, longest // 2))
    ends = [0, *np.cumsum(lengths).tolist()]
    tokens = draw_tokens(plan.spec.vocab_size, ends[-1], seed=len(windows))
    rows = tuple(tokens[start:end] for start, end in pairwise(ends))
    return [RowCase(f"rows padded on the {side}", rows, side == "left") for side in ("left", "right")]


def run_rows(cases: Sequence[RowCase], path: Path, advance: Callable[[int], None]) -> dict[str, Logits]:
    """Returns [N, V] logits of the real tokens of each case, row after row, by case name; none loads nothing.

    Raises:
        EngineError: ONNX Runtime cannot load the program at `path`.
    """
    if not cases:
        return {}
    program = RowProgram(path)
    given = {}
    for case in cases:
        given[case.name] = np.concatenate(program.run(case.rows, pads_left=case.pads_left))
        advance(1)
    return given


def judge_rows(
    cases: Sequence[RowCase],
    given: dict[str, Logits],
    plan: CompilePlan,
    oracle: Oracle,
    advance: Callable[[int], None],
) -> list[CaseResult]:
    """Returns the distance of every case from the oracle, which sees each row alone and without padding."""
    results = []
    for case in cases:
        reference = [oracle.logits(row, range(len(row)), long_rope_length(plan)) for row in case.rows]
        positions = [position for row in case.rows for position in range(len(row))]
        compared = Compared(case.name, ["logits"], positions)
        results.append(compare_logits(compared, np.concatenate(reference), given[case.name], TOLERANCES["float32"]))
        advance(1)
    return results
