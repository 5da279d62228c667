"""The ensemble's tokenizer model, over the scripted model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from llmpack.bundle.triton_runtime.tokenisation import Tokenisation
from llmpack.runtime.tokenizer import Tokenizer
from tests.bundle.fake_triton import FakeTriton, Request, TritonModelException
from tests.server.scripted import write_tokenizer

PAD = 3


@pytest.fixture
def model(tokenizer: Tokenizer) -> Tokenisation:
    return Tokenisation(FakeTriton(), tokenizer, max_seq_len=8, pad_token_id=PAD)


def prompts(*texts: str) -> Request:
    return Request(prompt=np.array([text.encode() for text in texts], dtype=np.object_))


def test_rows_are_padded_on_the_left(model: Tokenisation, tokenizer: Tokenizer) -> None:
    (response,) = model.execute([prompts("ab", "abcd")])
    short, long = (tokenizer.encode(text, add_special_tokens=True) for text in ("ab", "abcd"))
    assert len(short) < len(long)
    room = len(long) - len(short)
    ids, mask = response.outputs["input_ids"], response.outputs["attention_mask"]
    assert ids.dtype == mask.dtype == np.int64
    assert ids.tolist() == [[PAD] * room + short, long]
    assert mask.tolist() == [[0] * room + [1] * len(short), [1] * len(long)]


def test_a_bad_request_fails_alone(model: Tokenisation) -> None:
    good, long, empty = model.execute([prompts("ab"), prompts("ab", "x" * 50), prompts()])
    assert good.error is None
    assert long.error.code == empty.error.code == "invalid"
    assert "longer than what was compiled" in long.error.message
    assert "at most 8" in long.error.message
    assert "prompt is empty" in empty.error.message


def arguments(parameters: dict[str, str]) -> dict[str, str]:
    entries = {key: {"string_value": value} for key, value in parameters.items()}
    return {"model_config": json.dumps({"parameters": entries})}


def test_load_reads_the_config_and_its_own_directory(tmp_path: Path) -> None:
    triton = FakeTriton(tmp_path)
    good = arguments({"max_seq_len": "8", "pad_token_id": "3"})
    with pytest.raises(TritonModelException, match=r"no tokenizer\.json"):
        Tokenisation.load(triton, good)
    write_tokenizer(tmp_path)
    assert Tokenisation.load(triton, good).encode(["ab"])[0].size
    for bad in ({"max_seq_len": "8"}, {"max_seq_len": "eight", "pad_token_id": "3"}):
        with pytest.raises(TritonModelException, match="needs the parameters max_seq_len and pad_token_id"):
            Tokenisation.load(triton, arguments(bad))
