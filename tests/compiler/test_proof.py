"""A compile that disagrees with transformers fails, says where, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmpack.architectures.spec import RopeSpec
from llmpack.errors import ProofFailed
from llmpack.plan.options import CompileOptions
from llmpack.proof.compare import TOLERANCES, Compared, compare_logits, kl_divergence
from llmpack.proof.report import CaseResult, encode_report, find_report

STORIES = Path(__file__).parents[1] / "data" / "stories260K"


@pytest.mark.slow
@pytest.mark.compile
def test_a_wrong_rope_table_fails_the_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmpack.compiler import weights
    from llmpack.compiler.compile import compile_model

    def slightly_wrong(rope: RopeSpec, max_seq_len: int) -> tuple[np.ndarray, np.ndarray]:
        cos, sin = build_tables(rope, max_seq_len)
        return np.roll(cos, 1, axis=0), sin

    build_tables = weights.build_tables
    monkeypatch.setattr(weights, "build_tables", slightly_wrong)
    options = CompileOptions(
        model=str(STORIES), output=tmp_path / "out", max_seq_len=64, batch_size=2, prefill_buckets=(8, 16)
    )
    with pytest.raises(ProofFailed) as caught:
        compile_model(options)
    message = str(caught.value)
    assert "LlamaForCausalLM" in message
    assert "across a chunk boundary (head, prefill-16, prefill-8, decode-2)" in message
    assert "worst at position" in message
    assert list(tmp_path.iterdir()) == []


def logits(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


def compare(reference: np.ndarray, given: np.ndarray) -> CaseResult:
    """Compares rows that belong to positions 7, 8, ..."""
    compared = Compared("case", ["decode-1"], range(7, 7 + len(reference)))
    return compare_logits(compared, reference, given, TOLERANCES["float32"])


def test_equal_logits_pass() -> None:
    rows = logits([1.0, 2.0, 3.0], [4.0, 0.0, 1.0])
    result = compare(rows, rows.copy())
    assert result.passed
    assert (result.max_error, result.max_kl, result.greedy_agreement) == (0.0, 0.0, 1.0)


def test_the_worst_position_is_named() -> None:
    reference = logits([1.0, 2.0, 3.0], [4.0, 0.0, 1.0])
    given = logits([1.0, 2.0, 3.0], [4.0, 0.5, 1.0])
    result = compare(reference, given)
    assert not result.passed
    assert result.worst_position == 8
    assert result.max_error == pytest.approx(0.5 / 4)


def test_another_greedy_token_fails_unless_the_reference_is_tied() -> None:
    tie = 1e-4
    reference, given = logits([1.0, 1.0 + tie, -9.0]), logits([1.0 + tie, 1.0, -9.0])
    assert compare(reference, given).passed
    reference = logits([8.0, 9.0, -9.0])
    assert not compare(reference, reference[:, [1, 0, 2]]).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_fail(value: float) -> None:
    reference = logits([1.0, 2.0])
    assert not compare(reference, logits([1.0, value])).passed


def test_kl_is_that_of_the_distributions() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.5, 0.25])
    expected = float((p * np.log(p / q)).sum())
    assert kl_divergence(np.log(p)[None].astype(np.float32), np.log(q)[None].astype(np.float32))[0] == pytest.approx(
        expected, rel=1e-5
    )


def test_a_report_is_read_back(tmp_path: Path) -> None:
    from llmpack.proof.report import PROOF_NAME, ProofReport

    rows = logits([1.0, 2.0])
    case = compare(rows, rows)
    report = ProofReport(reference="r", tolerance=TOLERANCES["float32"], cases=[case])
    assert find_report(tmp_path) is None
    (tmp_path / PROOF_NAME).write_bytes(encode_report(report))
    assert find_report(tmp_path) == report
