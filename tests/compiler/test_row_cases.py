"""The proof's cases for the program `logits`, and that a wrong one fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from llmpack.proof.rows import RowCase, build_row_cases, judge_rows
from tests.compiler.test_plan import plan


class Oracle:
    """A model whose logits at a position are a function of the tokens so far."""

    reference = "paper"

    def logits(self, token_ids: Sequence[int], positions: Sequence[int], pad_to: int = 0) -> np.ndarray:
        assert pad_to == 0
        sums = np.cumsum(token_ids, dtype=np.float64)[list(positions)]
        return np.sin(sums[:, None] * np.arange(1, 5)).astype(np.float32)


def answers(cases: list[RowCase]) -> dict[str, np.ndarray]:
    oracle = Oracle()
    return {case.name: np.concatenate([oracle.logits(row, range(len(row))) for row in case.rows]) for case in cases}


def test_rows_differ_in_length_and_stand_on_both_sides() -> None:
    cases = build_row_cases(plan(logits=True))
    assert [(case.name, case.pads_left) for case in cases] == [
        ("rows padded on the left", True),
        ("rows padded on the right", False),
    ]
    assert [list(map(len, case.rows)) for case in cases] == [[32, 1, 16]] * 2
    assert build_row_cases(plan()) == []


def test_rows_are_cut_where_the_vocabulary_makes_their_logits_large() -> None:
    (case, _) = build_row_cases(plan({"vocab_size": 262144}, logits=True))
    assert 3 * len(case.rows[0]) * 262144 * 4 <= 1 << 26


@pytest.mark.parametrize("worst", [None, 3, 33], ids=["equal", "in-the-first-row", "in-the-last-row"])
def test_a_wrong_logit_fails_its_case_alone(worst: int | None) -> None:
    shape = plan(logits=True)
    cases = build_row_cases(shape)
    given = answers(cases)
    if worst is not None:
        given[cases[1].name][worst, 2] += 0.1
    left, right = judge_rows(cases, given, shape, Oracle(), lambda _amount: None)
    assert left.passed
    assert left.num_positions == 32 + 1 + 16
    assert left.programs == ["logits"]
    assert right.passed == (worst is None)
    if worst is not None:
        assert right.worst_position == {3: 3, 33: 0}[worst]
