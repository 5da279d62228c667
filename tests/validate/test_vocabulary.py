"""Known keys per release: what was read, what was removed when, and the nearest key."""

from __future__ import annotations

import pytest
from packaging.version import Version
from typer.main import get_command

from llmpack.cli.app import app
from llmpack.validate.vocabulary.engine_vocabulary import find_vocabulary, read_vocabulary

ENGINES = ("vllm", "vllm-rbln", "llmpack")


@pytest.mark.parametrize("engine", ENGINES)
def test_data_is_well_formed(engine: str) -> None:
    vocabulary = read_vocabulary(engine)
    assert list(vocabulary.releases) == sorted(vocabulary.releases, key=Version)
    assert set(vocabulary.short_flags.values()) <= set(vocabulary.keys)
    for key in vocabulary.keys.values():
        assert key.name == key.name.lower().replace("-", "_") or key.name.isupper()
        assert key.uses, key.name
        for ranges in key.uses.values():
            ends = [end for pair in ranges for end in pair]
            assert ends == sorted(ends)
            assert ends[-1] < len(vocabulary.releases)


# Source: the public record: vllm-project/vllm#23283 for the first row, releases' notes for the others.
@pytest.mark.parametrize(
    ("name", "use", "last", "removed"),
    [
        ("disable_log_requests", "arguments", "0.10.0", "0.10.1"),
        ("device", "arguments", "0.9.2", "0.10.0"),
        ("use_v2_block_manager", "arguments", "0.9.2", "0.10.0"),
    ],
)
def test_removals_name_their_release(name: str, use: str, last: str, removed: str) -> None:
    vllm = read_vocabulary("vllm")
    assert not vllm.knows(name, use, None)  # type: ignore[arg-type]
    assert vllm.knows(name, use, last)  # type: ignore[arg-type]
    assert (vllm.last_with(name, use), vllm.removed_in(name, use, None)) == (last, removed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["model", "max_num_seqs", "max_model_len", "max_num_batched_tokens", "block_size"])
def test_the_numbers_are_known_to_every_release(name: str) -> None:
    for engine in ("vllm", "vllm-rbln"):
        vocabulary = read_vocabulary(engine)
        assert all(vocabulary.knows(name, "arguments", release) for release in vocabulary.releases)
        assert vocabulary.type_of(name) == ("str" if name == "model" else "int")


def test_only_the_plugins_forks_know_the_compiled_directory() -> None:
    assert read_vocabulary("vllm").first_with("compiled_model_dir", "arguments") is None
    found = find_vocabulary("vllm-rbln", "0.9.4")
    assert found is not None
    vocabulary, release = found
    assert (vocabulary.engine, release) == ("vllm", "0.10.2")
    assert not vocabulary.knows("compiled_model_dir", "arguments", release)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("max_num_seq", "max_num_seqs"),
        ("max_model_length", "max_model_len"),
        ("tensor_paralel_size", "tensor_parallel_size"),
    ],
)
def test_nearest_key(wrong: str, right: str) -> None:
    assert read_vocabulary("vllm").nearest(wrong, "arguments", None) == right


def test_nothing_is_near_to_rubbish() -> None:
    assert read_vocabulary("vllm").nearest("qqqqqqqq", "arguments", None) is None


def test_targets_without_a_vocabulary() -> None:
    assert find_vocabulary("unknown", None) is None
    assert find_vocabulary("triton-python", None) is None


def test_an_unreadable_release_counts_as_unknown() -> None:
    found = find_vocabulary("vllm", "latest")
    assert found is not None
    assert found[1] is None


def test_our_own_flags_are_those_of_serve() -> None:
    serve = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    options = {
        option.lstrip("-").replace("-", "_") for param in serve.params for option in param.opts if "--" in option
    }
    known = {name for name, key in read_vocabulary("llmpack").keys.items() if "flags" in key.uses}
    # The artifact is an argument of `serve`; readers call it by the name that it has elsewhere.
    assert known == options - {"help"} | {"compiled_model_dir"}
