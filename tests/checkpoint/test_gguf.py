"""A .gguf gives the weights, config and token ids of the Hugging Face checkpoint it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from llmpack.checkpoint.source import open_checkpoint
from llmpack.checkpoint.tokens import find_special_tokens
from llmpack.errors import CorruptCheckpoint, UnsupportedArchitecture

pytestmark = pytest.mark.compile
gguf = pytest.importorskip("gguf")

from tests.checkpoint.gguf_files import STORIES, Change, write_stories  # noqa: E402  # needs gguf

TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "  two  spaces\n\n\tand 12345 digits",
    "naïve café 日本語 🎉",
    "",
    " ",
    "</s> then <s>",
]
LLAMA3_THETA = 500000.0
YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}
YARN_LEN = {"llama.rope.scaling.original_context_length": 128}


def with_metadata(**changes: Any) -> Change:
    """A change of metadata; `__` stands for a dot, None removes a key."""

    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        set_metadata(metadata, {key.replace("__", "."): value for key, value in changes.items()})

    return change


def set_metadata(metadata: dict[str, Any], changes: dict[str, Any]) -> None:
    metadata |= changes
    for key in [key for key, value in changes.items() if value is None]:
        del metadata[key]


def with_tensors(**changes: np.ndarray | None) -> Change:
    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        set_metadata(tensors, {key.replace("__", "."): value for key, value in changes.items()})

    return change


def test_weights_equal_the_checkpoint_it_was_made_from(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "stories.gguf")))
    expected = load_file(STORIES / "model.safetensors")
    assert checkpoint.weights.names() == sorted(expected)
    for name, tensor in expected.items():
        assert checkpoint.weights.info(name).shape == tensor.shape
        assert np.array_equal(checkpoint.weights.read(name), tensor), name
    assert checkpoint.weights.total_bytes == sum(tensor.nbytes for tensor in expected.values())


@pytest.mark.parametrize(("kind", "tolerance"), [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 1e-2), ("Q4_1", 0.1)])
def test_quantised_weights_are_close(tmp_path: Path, kind: str, tolerance: float) -> None:
    weights = open_checkpoint(str(write_stories(tmp_path / "stories.gguf", kind=kind))).weights
    for name, tensor in load_file(STORIES / "model.safetensors").items():
        array = weights.read(name)
        assert array.dtype == np.float32
        assert np.abs(array - tensor).max() <= tolerance * np.abs(tensor).max()


def test_config_says_what_the_checkpoint_says(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "stories.gguf")))
    expected = json.loads((STORIES / "config.json").read_text())
    del expected["torch_dtype"]
    assert {key: checkpoint.config[key] for key in expected} == expected
    assert (checkpoint.kind, checkpoint.model, checkpoint.directory) == ("gguf", "stories.gguf", None)
    assert json.loads(checkpoint.read_sidecar("config.json") or b"") == checkpoint.config
    assert [name for name, _ in checkpoint.source_files] == ["stories.gguf"]


def test_sentencepiece_token_ids_equal_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "stories.gguf")))
    ours = Tokenizer.from_str((checkpoint.read_sidecar("tokenizer.json") or b"").decode())
    theirs = Tokenizer.from_file(str(STORIES / "tokenizer.json"))
    for text in [*TEXTS, json.loads((STORIES / "greedy.json").read_text())["text"]]:
        assert ours.encode(text).ids == theirs.encode(text).ids
        ids = theirs.encode(text).ids
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.slow  # importing transformers
def test_transformers_loads_the_synthesised_files(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    checkpoint = open_checkpoint(str(write_stories(tmp_path / "stories.gguf")))
    for name in checkpoint.sidecar_files:
        (tmp_path / name).write_bytes(checkpoint.read_sidecar(name) or b"")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id) == (1, 2, 0)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text).ids


@pytest.mark.parametrize("model_type", ["linear", "yarn"])
def test_rope_scaling_is_carried(tmp_path: Path, model_type: str) -> None:
    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata |= YARN | {"llama.rope.scaling.type": model_type} | (YARN_LEN if model_type == "yarn" else {})

    scaling = open_checkpoint(str(write_stories(tmp_path / "s.gguf", change))).config["rope_scaling"]
    expected = {"rope_type": model_type, "factor": 4.0}
    if model_type == "yarn":
        expected |= {"original_max_position_embeddings": 128, "beta_fast": 32.0, "beta_slow": 1.0}
    assert scaling == expected


def llama3_inv_freq(scaling: dict[str, Any]) -> np.ndarray:
    """The frequencies that transformers computes for stories260K's shape under `scaling`."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = scaling | {"rope_theta": LLAMA3_THETA}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=8, max_position_embeddings=131072, rope_parameters=parameters
    )
    return np.asarray(ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")[0])


@pytest.mark.slow  # importing transformers
def test_llama3_scaling_is_recovered_from_its_factors(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    plain = LLAMA3_THETA ** -(np.arange(0, 8, 2) / 8)
    factors = (plain / llama3_inv_freq(scaling)).astype(np.float32)
    assert len(set(factors.round(3))) == 3  # kept, blended and divided

    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        metadata["llama.rope.freq_base"] = LLAMA3_THETA
        tensors["rope_freqs.weight"] = factors

    checkpoint = open_checkpoint(str(write_stories(tmp_path / "s.gguf", change)))
    assert checkpoint.config["rope_scaling"] == scaling
    assert "rope_freqs.weight" not in checkpoint.weights.names()


def test_an_own_head_is_untied(tmp_path: Path) -> None:
    head = np.ones((512, 64), np.float32)
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "s.gguf", with_tensors(output__weight=head))))
    assert checkpoint.config["tie_word_embeddings"] is False
    assert np.array_equal(checkpoint.weights.read("lm_head.weight"), head)


def test_end_of_turn_ids_and_template_are_carried(tmp_path: Path) -> None:
    change = with_metadata(tokenizer__ggml__eot_token_id=300, tokenizer__chat_template="{{ messages }}")
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "s.gguf", change)))
    assert checkpoint.read_sidecar("chat_template.jinja") == b"{{ messages }}"
    assert find_special_tokens(checkpoint) == (1, frozenset({2, 300}), None)


def test_bos_is_left_out_when_the_file_says_so(tmp_path: Path) -> None:
    change = with_metadata(tokenizer__ggml__add_bos_token=False, tokenizer__ggml__add_eos_token=True)
    checkpoint = open_checkpoint(str(write_stories(tmp_path / "s.gguf", change)))
    ids = Tokenizer.from_str((checkpoint.read_sidecar("tokenizer.json") or b"").decode()).encode("a").ids
    assert (ids[0] != 1, ids[-1]) == (True, 2)


def write_byte_level(path: Path, **changes: Any) -> Path:
    """A byte-level vocabulary: 256 bytes, what four digits merge to, one whole word, one special and one user token."""
    alphabet = sorted(ByteLevel.alphabet())
    tokens = [*alphabet, "12", "123", "1234", "\u0120x", "word", "<|end|>", "<tool>", "[PAD]"]
    types = [1] * (len(tokens) - 3) + [3, 4, 5]
    fields = {
        "model": "gpt2",
        "tokens": tokens,
        "token_type": types,
        "merges": ["1 2", "12 3", "123 4", "\u0120 x"],
        "scores": None,
        "bos_token_id": tokens.index("<|end|>"),
        "eos_token_id": tokens.index("<|end|>"),
    }
    metadata = {f"tokenizer.ggml.{key}": value for key, value in (fields | changes).items()}
    return write_stories(path, lambda old, tensors: set_metadata(old, metadata))


def read_tokenizer(path: Path) -> Tokenizer:
    checkpoint = open_checkpoint(str(path))
    return Tokenizer.from_str((checkpoint.read_sidecar("tokenizer.json") or b"").decode())


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["1234", "\u0120x"]),
        ("smollm", ["1", "2", "3", "4", "\u0120x"]),
        ("qwen2", ["1", "2", "3", "4", "\u0120x"]),
        ("llama-bpe", ["<|end|>", "123", "4", "\u0120x"]),
    ],
)
def test_each_pre_tokenizer_splits_its_own_way(tmp_path: Path, pre: str, expected: list[str]) -> None:
    tokenizer = read_tokenizer(write_byte_level(tmp_path / "s.gguf", pre=pre))
    assert tokenizer.encode("1234 x").tokens == expected
    text = "It's 1234\r\n\r\n  naïve 日本語 🎉\t "
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_whole_words_skip_the_merges_only_in_llama3(tmp_path: Path) -> None:
    tokens = {
        pre: read_tokenizer(write_byte_level(tmp_path / f"{pre}.gguf", pre=pre)).encode("word").tokens
        for pre in ("llama-bpe", "qwen2")
    }
    assert tokens == {"llama-bpe": ["<|end|>", "word"], "qwen2": ["w", "o", "r", "d"]}


def test_special_and_user_tokens_are_atomic_and_unused_ones_are_left_out(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_byte_level(tmp_path / "s.gguf", pre="gpt-2"))
    ids = tokenizer.encode("x<tool>x<|end|>").ids
    assert [tokenizer.id_to_token(i) for i in ids] == ["x", "<tool>", "x", "<|end|>"]
    assert tokenizer.decode(ids) == "x<tool>x"
    assert tokenizer.token_to_id("[PAD]") is None


def test_qwen2_composes_characters_as_its_tokenizer_does(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(write_byte_level(tmp_path / "s.gguf", pre="qwen2"))
    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


REFUSED: dict[str, tuple[Change, type[Exception], str]] = {
    "another family": (
        with_metadata(general__architecture="mamba"),
        UnsupportedArchitecture,
        "only llama-family .*mamba",
    ),
    "an unknown setting": (
        with_metadata(llama__attention__sink_len=4),
        UnsupportedArchitecture,
        r"'llama\.attention\.sink_len' may change the maths",
    ),
    "experts": (with_metadata(llama__expert_count=8), UnsupportedArchitecture, r"llama\.expert_count.*given: 8"),
    "a missing setting": (
        with_metadata(llama__block_count=None),
        CorruptCheckpoint,
        r"'llama\.block_count' is missing",
    ),
    "layers that differ": (
        with_metadata(llama__attention__head_count_kv=[4, 4, 2, 4, 4]),
        UnsupportedArchitecture,
        "different shapes",
    ),
    "partial rotary": (with_metadata(llama__rope__dimension_count=4), UnsupportedArchitecture, "dimension_count"),
    "unknown rope scaling": (
        with_metadata(llama__rope__scaling__type="longrope"),
        UnsupportedArchitecture,
        "unknown rope scaling.*longrope",
    ),
    "foreign rope factors": (
        with_tensors(rope_freqs__weight=np.array([1, 2, 3, 5], np.float32)),
        UnsupportedArchitecture,
        r"rope_freqs\.weight.*not those of a llama3",
    ),
    "a left-over tensor": (
        with_tensors(blk__0__ffn_gate_inp__weight=np.ones((2, 64), np.float32)),
        CorruptCheckpoint,
        r"no place in a llama: blk\.0\.ffn_gate_inp\.weight",
    ),
    "no embedding": (with_tensors(token_embd__weight=None), CorruptCheckpoint, r"'token_embd\.weight' is missing"),
    "some biases": (
        with_tensors(blk__0__attn_q__bias=np.ones(64, np.float32)),
        UnsupportedArchitecture,
        "biases on all of these",
    ),
    "a part of a split model": (with_metadata(split__count=2), UnsupportedArchitecture, "llama-gguf-split --merge"),
    "unknown tokenizer": (with_metadata(tokenizer__ggml__model="rwkv"), UnsupportedArchitecture, "tokenizer.*rwkv"),
    "unknown pre-tokenizer": (
        with_metadata(tokenizer__ggml__model="gpt2", tokenizer__ggml__pre="tekken"),
        UnsupportedArchitecture,
        "unknown pre-tokenizer.*tekken.*smollm",
    ),
    "no pre-tokenizer": (
        with_metadata(tokenizer__ggml__model="gpt2"),
        UnsupportedArchitecture,
        "unknown pre-tokenizer.*an old file",
    ),
    "no merges": (
        with_metadata(tokenizer__ggml__model="gpt2", tokenizer__ggml__pre="gpt-2"),
        CorruptCheckpoint,
        "merges is missing",
    ),
    "no scores": (with_metadata(tokenizer__ggml__scores=None), CorruptCheckpoint, "scores does not fit"),
    "a token twice": (
        with_metadata(tokenizer__ggml__tokens=["a", "b", "c", "a"]),
        CorruptCheckpoint,
        "stand there twice",
    ),
    "an id outside": (with_metadata(tokenizer__ggml__eos_token_id=512), CorruptCheckpoint, "token id 512 is outside"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_right_is_refused(tmp_path: Path, case: str) -> None:
    change, error, message = REFUSED[case]
    path = write_stories(tmp_path / "s.gguf", change)
    with pytest.raises(error, match=message):
        open_checkpoint(str(path))


@pytest.mark.parametrize(
    ("num_bytes", "message"),
    [
        (0, "too short"),
        (20, "too short"),
        (30, "ends .at byte 30. within a metadata key"),
        (3000, r"within metadata 'tokenizer\.ggml\.tokens'"),
        (-8, "'output_norm.weight' ends at byte .*truncated"),
    ],
)
def test_a_truncated_file_says_where(tmp_path: Path, num_bytes: int, message: str) -> None:
    path = write_stories(tmp_path / "s.gguf")
    content = path.read_bytes()
    path.write_bytes(content[:num_bytes])
    with pytest.raises(CorruptCheckpoint, match=message):
        open_checkpoint(str(path))


def test_another_file_under_the_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(CorruptCheckpoint, match="not a gguf file"):
        open_checkpoint(str(tmp_path / "s.gguf"))


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = write_stories(tmp_path / "s.gguf")
    path.write_bytes(b"GGUF\x09" + path.read_bytes()[5:])
    with pytest.raises(UnsupportedArchitecture, match="version"):
        open_checkpoint(str(path))


def test_every_truncation_is_refused_and_none_crashes(tmp_path: Path) -> None:
    path = write_stories(tmp_path / "s.gguf")
    content = path.read_bytes()
    for num_bytes in np.random.default_rng(0).integers(0, len(content), 40):
        path.write_bytes(content[:num_bytes])
        with pytest.raises(CorruptCheckpoint):
            open_checkpoint(str(path))
