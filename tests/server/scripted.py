"""A tokenizer and a "model" whose greedy continuation of any prompt that ends in " go" is known to the byte."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from llmpack.runtime.async_engine import AsyncEngine
from llmpack.runtime.chat_template import ChatTemplate
from llmpack.runtime.engine import Engine, EngineOptions
from llmpack.runtime.paper_runner import PaperRunner
from llmpack.runtime.resolve import ModelLimits
from llmpack.runtime.runner import RunnerShape
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.served_model import ServedModel, read_sampling_defaults

GO = " go"
SCRIPT = ": one, two STOP here😀 café END"
EOS = "<|endoftext|>"
NAME = "org/scripted"
# Words that become one token each; the emoji is left out so that it takes four tokens of one byte.
_WORDS = " go: one, two STOP here café END Hello assistant user"
TEMPLATE = (
    "{% for message in messages %}{% if message.content == 'poison' %}{{ raise_exception('no poison') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}{% if not loop.last or add_generation_prompt %}{{ '\n' }}{% endif %}"
    "{% endfor %}{% if note is defined %}{{ note }}{% endif %}"
    "{% if add_generation_prompt %}assistant go{% endif %}"
)


def write_tokenizer(directory: Path) -> None:
    """Writes the files that an artifact takes over from a checkpoint, the weights aside."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[EOS], initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([_WORDS] * 8, trainer)
    backend.save(str(directory / "tokenizer.json"))
    config = {"eos_token": EOS, "chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}), encoding="utf-8")


def script_of(tokenizer: Tokenizer, text: str = SCRIPT) -> dict[int, int]:
    """Token id -> the id that follows it, from GO through `text` to EOS. Each id occurs once."""
    ids = [*tokenizer.encode(GO + text, add_special_tokens=False), tokenizer.id_of(EOS)]
    assert len(set(ids)) == len(ids)
    return dict(pairwise(ids))


def build_engine(
    tokenizer: Tokenizer,
    *,
    batch_size: int = 4,
    max_seq_len: int = 512,
    step_time_s: float = 0.0,
    max_waiting: int = 256,
) -> AsyncEngine:
    """A started engine over the script."""
    shape = RunnerShape(batch_size, max_seq_len, tokenizer.vocab_size, (16, 64), tuple(sorted({1, batch_size})))
    runner = PaperRunner(shape, script_of(tokenizer), step_time_s=step_time_s)
    engine = AsyncEngine(Engine(runner, tokenizer, EngineOptions(max_waiting=max_waiting)))
    engine.start()
    return engine


def build_model(directory: Path, tokenizer: Tokenizer, *, max_seq_len: int = 512, batch_size: int = 4) -> ServedModel:
    """The scripted model as a server sees it, under its name and the alias "m"."""
    return ServedModel(
        names=(NAME, "m"),
        tokenizer=tokenizer,
        limits=ModelLimits(tokenizer.vocab_size, max_seq_len, frozenset({tokenizer.eos_token_id or 0})),
        created=1,
        chat_template=ChatTemplate.from_directory(directory),
        sampling_defaults=read_sampling_defaults(directory),
        tokenizer_info=json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8")),
        batch_size=batch_size,
    )
