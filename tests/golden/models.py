"""Tiny random checkpoints in Hugging Face's format, and transformers' answers about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
import torch
import transformers
from tokenizers.models import WordLevel

from tests.golden.cases import GoldenCase

Logits = npt.NDArray[np.float32]

torch.set_num_threads(1)  # Threads cost more than they bring on models of this size.


def write_model(case: GoldenCase, directory: Path) -> Any:
    """Writes the case's checkpoint and returns the model. Weights are large enough for logits of some size."""
    torch.manual_seed(len(case.name))
    settings = {name: value for name, value in case.config.items() if value is not None or name == "sliding_window"}
    config = transformers.AutoConfig.for_model(
        case.model_type, **settings, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        offset = 1.0 if "norm" in name and name.endswith("weight") and "gemma" not in case.model_type else 0.0
        torch.nn.init.normal_(parameter, offset if parameter.dim() == 1 else 0.0, 0.15)
    model.tie_weights()
    model.generation_config.eos_token_id = None
    model.save_pretrained(directory)
    write_tokenizer(directory, config.vocab_size)
    return model


def write_tokenizer(directory: Path, vocab_size: int) -> None:
    """A tokenizer of words t0, t1, ... so that the checkpoint is complete."""
    vocabulary = {f"t{index}": index for index in range(vocab_size)}
    tokenizers.Tokenizer(WordLevel(vocabulary, unk_token="t0")).save(str(directory / "tokenizer.json"))


def whole_logits(model: Any, token_ids: list[int], pad_to: int = 0) -> Logits:
    """[len(token_ids), V] logits of one pass without a cache; padding only lengthens the sequence for longrope."""
    padded = token_ids + [0] * (pad_to - len(token_ids))
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([padded]), use_cache=False)
    return np.asarray(output.logits[0, : len(token_ids)].numpy())


def masked_logits(model: Any, rows: list[list[int]]) -> list[Logits]:
    """[len(row), V] logits of each row out of one pass over all, padded on the left, with `generate`'s positions."""
    longest = max(map(len, rows))
    input_ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask}
    with torch.inference_mode():
        logits = model(**inputs, position_ids=(mask.cumsum(1) - 1).clamp(min=0), use_cache=False).logits
    return [np.asarray(logits[index, longest - len(row) :].numpy()) for index, row in enumerate(rows)]


def greedy_ids(model: Any, prompt: list[int], count: int, pad_to: int = 0) -> list[int]:
    """transformers' greedy continuation, by whole passes where its own cache would switch rope tables half way."""
    if not pad_to:
        inputs = torch.tensor([prompt])
        output = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=count, do_sample=False, eos_token_id=None
        )
        return [int(i) for i in output[0, len(prompt) :]]
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(whole_logits(model, ids, pad_to)[-1].argmax()))
    return ids[len(prompt) :]
