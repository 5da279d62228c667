"""Writes a checkpoint of random weights in the shape of a published model, with a tokenizer of its size.

    python benchmarks/random_checkpoint.py smollm2-135m DIR

How fast a model runs depends on its shape, not on what its weights say, so nothing needs to be downloaded. The shapes
are the configs in `benchmarks/models`. Needs the extra `compile`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

MODELS = Path(__file__).parent / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.json"))


def write_checkpoint(name: str, target: Path, seed: int = 0) -> None:
    """Writes `target`, where nothing may be yet; the same seed gives the same weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    stage = target.with_name(f".{target.name}.new")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    shutil.copyfile(MODELS / f"{name}.json", stage / "config.json")
    config = AutoConfig.from_pretrained(stage)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(stage)
    build_tokenizer(config.vocab_size).save_pretrained(stage)
    stage.rename(target)


def build_tokenizer(vocab_size: int):
    """A tokenizer of so many tokens: the 256 bytes, then words that no text is made of, the last two special."""
    import tokenizers
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    letters = sorted(ByteLevel.alphabet())
    words = [f"w{index}" for index in range(vocab_size - len(letters) - 2)]
    vocab = {token: index for index, token in enumerate([*letters, *words, "<s>", "</s>"])}
    backend = tokenizers.Tokenizer(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.target.exists():
        parser.error(f"{arguments.target} exists")
    write_checkpoint(arguments.name, arguments.target)


if __name__ == "__main__":
    main()
