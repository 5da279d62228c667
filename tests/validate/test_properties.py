"""What holds for every artifact and the config derived from it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.validate.evaluate import NotChecked, Selection, evaluate_config
from llmpack.validate.facts import ArtifactFacts
from llmpack.validate.fix_rounds import fix_paths
from llmpack.validate.model import Finding, JsonValue, ServingConfig
from llmpack.validate.rules.rule import Context, PathState
from llmpack.validate.run import ValidateOptions, validate_paths
from tests.validate.foreign_artifacts import write_rbln
from tests.validate.rule_cases import FIXED, OURS, kwargs

NUMBERS = st.integers(min_value=1, max_value=1 << 20)
PATHS = {"/artifact": PathState("/artifact", is_artifact=True, is_the_artifact=True)}


@st.composite
def artifacts(draw: st.DrawFn) -> ArtifactFacts:
    """Facts of a fixed-shape artifact or of one of ours."""
    max_seq_len, batch_size = draw(NUMBERS), draw(NUMBERS)
    common = {
        "batch_size": batch_size,
        "max_seq_len": max_seq_len,
        "kv_block_size": max_seq_len,
        "tensor_parallel_size": draw(st.sampled_from([1, 2, 4, 8])),
        "dtype": draw(st.sampled_from(["float32", "float16", "bfloat16"])),
        "model_id": draw(st.from_regex(r"[a-z]{1,8}/[A-Za-z0-9.-]{1,12}", fullmatch=True)),
    }
    if draw(st.booleans()):
        return replace(FIXED, max_num_batched_tokens=max_seq_len, **common)
    return replace(OURS, prefill_buckets=(draw(st.integers(1, max_seq_len)),), **common)


def derive(facts: ArtifactFacts) -> dict[str, JsonValue]:
    """The settings that say exactly what was compiled."""
    settings: dict[str, JsonValue] = {
        "model": facts.model_id,
        "compiled_model_dir": "/artifact",
        "device": facts.devices[0] if facts.devices else None,
        "max_num_seqs": facts.batch_size,
        "max_model_len": facts.max_seq_len,
        "max_num_batched_tokens": facts.max_num_batched_tokens or facts.max_seq_len,
        "block_size": facts.kv_block_size,
        "tensor_parallel_size": facts.tensor_parallel_size,
        "dtype": facts.dtype,
    }
    return settings


def config_of(facts: ArtifactFacts, settings: dict[str, JsonValue]) -> ServingConfig:
    return kwargs("vllm-rbln" if facts.is_fixed_shape else "llmpack", **settings)


def findings_of(facts: ArtifactFacts, config: ServingConfig) -> list[Finding]:
    outcomes = list(evaluate_config(config, Context(facts, PATHS), Selection()))
    assert not [outcome for outcome in outcomes if isinstance(outcome, NotChecked)]
    return [outcome for outcome in outcomes if isinstance(outcome, Finding)]


@given(artifacts())
def test_the_derived_config_is_clean(facts: ArtifactFacts) -> None:
    assert findings_of(facts, config_of(facts, derive(facts))) == []


@dataclass(frozen=True)
class Mutation:
    """A wrong value of one setting, and the rules of which one must find it."""

    name: str
    rules: frozenset[str]
    only_fixed: bool = False


MUTATIONS = [
    Mutation("max_num_seqs", frozenset({"LP101"})),
    Mutation("max_model_len", frozenset({"LP102"})),
    Mutation("max_num_batched_tokens", frozenset({"LP103"}), only_fixed=True),
    Mutation("block_size", frozenset({"LP104"})),
    Mutation("tensor_parallel_size", frozenset({"LP107"})),
]


@given(artifacts(), st.sampled_from(MUTATIONS), st.integers(1, 1 << 20))
def test_any_larger_number_is_found(facts: ArtifactFacts, mutation: Mutation, more: int) -> None:
    settings = derive(facts)
    value = settings[mutation.name]
    assert isinstance(value, int)
    settings[mutation.name] = value + more
    found = {finding.rule_id for finding in findings_of(facts, config_of(facts, settings))}
    if facts.is_fixed_shape or not mutation.only_fixed:
        assert found == mutation.rules


@given(artifacts(), st.sampled_from(MUTATIONS), st.data())
def test_any_other_number_is_found_where_shapes_are_fixed(
    facts: ArtifactFacts, mutation: Mutation, data: st.DataObject
) -> None:
    facts = replace(facts, is_fixed_shape=True, max_num_batched_tokens=facts.max_seq_len, devices=("rbln",))
    settings = derive(facts)
    settings[mutation.name] = data.draw(NUMBERS.filter(lambda number: number != settings[mutation.name]))
    found = {finding.rule_id for finding in findings_of(facts, config_of(facts, settings))}
    assert found == mutation.rules


WRONG_TYPES = st.sampled_from([str, float, lambda value: [value], lambda _: True])


@given(artifacts(), st.sampled_from(MUTATIONS), WRONG_TYPES)
def test_any_wrong_type_is_found(facts: ArtifactFacts, mutation: Mutation, convert: object) -> None:
    settings = derive(facts)
    settings[mutation.name] = convert(settings[mutation.name])  # type: ignore[operator]
    assert {finding.rule_id for finding in findings_of(facts, config_of(facts, settings))} == {"LP110"}


@given(artifacts(), st.sampled_from(["model", "device", "dtype"]), st.from_regex(r"[a-z]{3,9}", fullmatch=True))
def test_any_other_word_is_found(facts: ArtifactFacts, name: str, word: str) -> None:
    settings = derive(facts)
    if word in {settings[name], "auto", "none", "half", "float", "rbln", "cpu"}:
        return
    settings[name] = word
    expected = {"model": "LP106", "device": "LP108", "dtype": "LP109"}[name]
    assert [finding.rule_id for finding in findings_of(facts, config_of(facts, settings))] == [expected]


@given(
    artifacts(),
    st.dictionaries(
        st.sampled_from(["max_num_seqs", "max_model_len", "block_size", "max_num_batched_tokens"]), NUMBERS
    ),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
)
def test_enlarging_a_limit_never_adds_a_finding(
    facts: ArtifactFacts, served: dict[str, JsonValue], more_slots: int, more_tokens: int
) -> None:
    facts = replace(facts, is_fixed_shape=False, kind="llmpack", devices=("cpu",), prefill_buckets=(1,))
    settings = {**derive(facts), **served, "block_size": served.get("max_model_len", facts.max_seq_len)}
    larger = replace(
        facts,
        batch_size=(facts.batch_size or 0) + more_slots,
        max_seq_len=(facts.max_seq_len or 0) + more_tokens,
        kv_block_size=(facts.max_seq_len or 0) + more_tokens,
        max_num_batched_tokens=None,
    )
    config = config_of(facts, settings)
    before, after = ({f.rule_id for f in findings_of(each, config)} for each in (facts, larger))
    assert after <= before


CHANGES: dict[str, list[JsonValue]] = {
    "max_num_seqs": [8, 2, "4", 4.0, "16"],
    "max_model_len": [2048, "4096", 8192],
    "max_num_batched_tokens": [512, "4096"],
    "block_size": [16, 4096.0],
    "device": ["cuda"],
    "model": ["org/other"],
    "tensor_parallel_size": [1, "4"],
    "enable_lora": [True],
    "max_num_seqz": [4],
}


@pytest.mark.parametrize("indent", [None, 4])
@given(changes=st.fixed_dictionaries({}, optional={key: st.sampled_from(CHANGES[key]) for key in CHANGES}))
def test_fixing_leaves_nothing_that_is_fixable(changes: dict[str, JsonValue], indent: int | None) -> None:
    """`max_num_seqz` beside `max_num_seqs` is the one that cannot be fixed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        artifact = write_rbln(root / "artifact")
        settings = {
            "model": "meta-llama/Llama-2-7b-chat-hf",
            "device": "rbln",
            "max_num_seqs": 4,
            "compiled_model_dir": str(artifact),
            "max_num_batched_tokens": 4096,
            "max_model_len": 4096,
            "block_size": 4096,
            **changes,
        }
        file = root / "model.json"
        file.write_text(json.dumps(settings, indent=indent))
        options = ValidateOptions(artifact, Selection(ignore=("LP13",)))
        before = validate_paths([file], options)
        result = fix_paths([file], options)
        assert [finding.fix for finding in result.after.findings] == [None] * len(result.after.findings)
        if all(finding.fix is not None for finding in before.findings):
            assert result.after.is_clean
        fixed = file.read_bytes()
        assert fix_paths([file], options).changes == ()
        assert file.read_bytes() == fixed
        assert list(json.loads(fixed)) == [key for key in settings if key != "enable_lora"]
