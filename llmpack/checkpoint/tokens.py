"""Which token ids begin, end and pad a sequence, from everything that a checkpoint says about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.json_file import parse_json
from llmpack.errors import CorruptCheckpoint

# Tokens with which published chat templates close a turn.
_END_OF_TURN = (
    "<|eot_id|>",  # Llama 3
    "<|eot|>",  # Llama 4
    "<|im_end|>",  # ChatML: Qwen, SmolLM, Yi
    "<|end|>",  # Phi
    "<end_of_turn>",  # Gemma
    "<|end_of_turn|>",  # OpenChat, Starling
    "<|END_OF_TURN_TOKEN|>",  # Command R
)
# In templates with channels <|end|> closes one message of a turn, not the turn.
_CHANNEL = "<|channel|>"


class SpecialTokenIds(NamedTuple):
    """Ids that the runtime treats specially.

    Attributes:
        bos_token_id: Or None.
        eos_token_ids: Every id that ends a sequence.
        pad_token_id: Or None.
    """

    bos_token_id: int | None
    eos_token_ids: frozenset[int]
    pad_token_id: int | None


def find_special_tokens(checkpoint: Checkpoint) -> SpecialTokenIds:
    """BOS, all EOS and pad ids.

    EOS is the union of config.json, generation_config.json, the tokenizer's `eos_token` and the end-of-turn tokens
    that the chat template writes: publishers often forget one of the four. BOS and pad come from the first of
    the files that names one.

    Raises:
        CorruptCheckpoint: An id is not a number in [0, vocab_size), or a named token is not in the tokenizer.
    """
    tokenizer = _read_json(checkpoint, "tokenizer.json")
    sources = _read_sources(checkpoint, _read_vocabulary(tokenizer))
    bos = [found for source in sources for found in source.find("bos")]
    eos = [found for source in sources for found in source.find("eos")]
    pad = [found for source in sources for found in source.find("pad")]
    turn_ends = _turn_ends(checkpoint, _read_added_tokens(tokenizer))
    return SpecialTokenIds(
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=frozenset([*eos, *turn_ends]),
        pad_token_id=pad[0] if pad else None,
    )


def find_chat_template(checkpoint: Checkpoint) -> str | None:
    """The default chat template's text, or None: chat_template.jinja, else tokenizer_config.json's own.

    Raises:
        CorruptCheckpoint: The template is not UTF-8 text.
    """
    separate = checkpoint.read_sidecar("chat_template.jinja")
    if separate is not None:
        try:
            return separate.decode()
        except UnicodeDecodeError as error:
            raise CorruptCheckpoint(f"not UTF-8 ({error})", where="chat_template.jinja") from None
    for file_name in ("tokenizer_config.json", "chat_template.json"):
        template = _read_json(checkpoint, file_name).get("chat_template")
        if isinstance(template, list):  # several, by name
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            template = named.get("default")
        if isinstance(template, str):
            return template
    return None


@dataclass(frozen=True)
class _Source:
    """One file's opinion."""

    file_name: str
    content: dict[str, Any]
    vocabulary: dict[str, int]
    vocab_size: int | None

    def find(self, kind: str) -> list[int]:
        """The ids of `kind` (bos, eos or pad) in this file, in its order."""
        ids = self.content.get(f"{kind}_token_id")
        found = [self._check(f"{kind}_token_id", one) for one in (ids if isinstance(ids, list) else [ids])]
        if self.file_name == "tokenizer_config.json":
            found.append(self._look_up(f"{kind}_token"))
        return [one for one in found if one is not None]

    def _check(self, field: str, token_id: Any) -> int | None:
        # Old configs write -1 for "no padding".
        if token_id is None or (token_id == -1 and field == "pad_token_id"):
            return None
        if type(token_id) is int and 0 <= token_id < (self.vocab_size or token_id + 1):
            return token_id
        raise CorruptCheckpoint(
            "a special token id lies outside the vocabulary",
            where=f"{self.file_name}, {field}",
            given=token_id,
            allowed=f"0 to {self.vocab_size - 1}" if self.vocab_size else "a number that is not negative",
        )

    def _look_up(self, field: str) -> int | None:
        token = self.content.get(field)
        token = token.get("content") if isinstance(token, dict) else token
        if token is None or not self.vocabulary:
            return None
        if token not in self.vocabulary:
            if field == "pad_token":  # padding tokens are often only named; nothing is ever padded with them here
                return None
            raise CorruptCheckpoint(
                "a special token is not in tokenizer.json", where=f"{self.file_name}, {field}", given=token
            )
        return self._check(field, self.vocabulary[token])


def _read_sources(checkpoint: Checkpoint, vocabulary: dict[str, int]) -> list[_Source]:
    text_config = checkpoint.config.get("text_config")
    config = (text_config if isinstance(text_config, dict) else {}) | checkpoint.config
    vocab_size = config.get("vocab_size")
    contents = {
        "config.json": config,
        "generation_config.json": checkpoint.generation_config or {},
        "tokenizer_config.json": _read_json(checkpoint, "tokenizer_config.json"),
    }
    return [
        _Source(file_name, content, vocabulary, vocab_size if isinstance(vocab_size, int) else None)
        for file_name, content in contents.items()
    ]


def _read_vocabulary(tokenizer: dict[str, Any]) -> dict[str, int]:
    """Token -> id, of the model's vocabulary (BPE and WordPiece keep it as an object) and the added tokens."""
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):  # Unigram: a list of [token, score]
        vocab = {entry[0]: token_id for token_id, entry in enumerate(vocab)}
    return {**(vocab or {}), **_read_added_tokens(tokenizer)}


def _read_added_tokens(tokenizer: dict[str, Any]) -> dict[str, int]:
    return {token["content"]: token["id"] for token in tokenizer.get("added_tokens") or []}


def _turn_ends(checkpoint: Checkpoint, added: dict[str, int]) -> list[int]:
    template = find_chat_template(checkpoint)
    if template is None:
        return []
    written = [token for token in _END_OF_TURN if token in added and token in template]
    return [added[token] for token in written if not (token == "<|end|>" and _CHANNEL in template)]


def _read_json(checkpoint: Checkpoint, file_name: str) -> dict[str, Any]:
    content = checkpoint.read_sidecar(file_name)
    return {} if content is None else parse_json(content, file_name)
