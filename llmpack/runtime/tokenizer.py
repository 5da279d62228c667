"""Text <-> token ids, as transformers' fast tokenizers do it, from an artifact's tokenizer files alone.

Source: transformers 5 `TokenizersBackend` (which files are read, which tokens join those of tokenizer.json, that its
post-processor alone says whether BOS and EOS are added). The clean-up of spaces, which transformers skips for BPE, is
never applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from llmpack.errors import ArtifactError, RequestError
from llmpack.runtime.token_bytes import byte_fallback_value, byte_level_bytes

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED_TOKENS = ("additional_special_tokens", "extra_special_tokens")
_REPLACEMENT = "\ufffd"


class Tokenizer:
    """One model's tokenizer. Thread-safe once built; the tokenizers library releases the GIL while it encodes.

    Attributes:
        named_tokens: Texts of the named special tokens, such as {"bos_token": "<s>"}; chat templates see them.
        byte_level: Whether every token stands for bytes and the text is their concatenation (GPT-2's scheme).
    """

    def __init__(self, backend: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
        """Takes over `backend`: truncation and padding are turned off, tokens named in `config` are added.

        Args:
            backend: The parsed tokenizer.json.
            config: What `read_tokenizer_config` gives.
        """
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.named_tokens = named_tokens_of(config)
        self._add_missing_tokens(config)
        decoders = _decoder_kinds(json.loads(backend.to_str())["decoder"])
        self.byte_level = bool(decoders) and decoders <= {"ByteLevel", "Fuse"} and "ByteLevel" in decoders
        self._byte_fallback = "ByteFallback" in decoders
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.bos_token_id = self._named_id("bos_token")
        self.eos_token_id = self._named_id("eos_token")
        # Filled as tokens turn up; a race only computes an entry twice.
        self._bytes: dict[int, bytes | None] = {}
        self._partial: dict[int, bool] = {}
        self._anchor = self._find_anchor()

    @classmethod
    def from_directory(cls, path: Path) -> Tokenizer:
        """Reads tokenizer.json and, where present, tokenizer_config.json and special_tokens_map.json.

        Raises:
            ArtifactError: tokenizer.json is missing, or one of the files cannot be read.
        """
        file = path / "tokenizer.json"
        if not file.is_file():
            raise ArtifactError("there is no tokenizer.json", where=str(path), next_step="Compile the model again.")
        try:
            backend = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise ArtifactError(f"the tokenizer cannot be read ({error})", where=str(file)) from error
        return cls(backend, read_tokenizer_config(path))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. The logits may be wider."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        """Tokens beside the model's own vocabulary, special or not, by id."""
        return dict(self._backend.get_added_tokens_decoder())

    @cached_property
    def longest_token_len(self) -> int:
        """Characters of the longest vocabulary entry. Costs a walk through the vocabulary, once."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`. Special tokens spelled in the text become their ids, as in transformers.

        Args:
            text: Any text without lone surrogates.
            add_special_tokens: Whether the post-processor adds BOS and EOS (where the model has them).

        Raises:
            RequestError: The text holds a lone surrogate.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RequestError(f"the text is not valid Unicode ({error.reason})", param="prompt") from error
        return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of `ids`; U+FFFD stands for bytes that are not UTF-8. Ids without a token give nothing."""
        return str(self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def id_of(self, token: str) -> int | None:
        """Id of the token whose vocabulary entry is `token`, or None."""
        found = self._backend.token_to_id(token)
        return None if found is None else int(found)

    def is_special(self, token_id: int) -> bool:
        """Whether `skip_special_tokens` hides the token."""
        return token_id in self.special_ids

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that the token stands for in the middle of a text, or None when there is no such token.

        They may be a part of a character only. A leading space that decoding drops at the start of a text is there.
        """
        if token_id not in self._bytes:
            self._bytes[token_id] = self._find_bytes(token_id)
        return self._bytes[token_id]

    def token_text(self, token_id: int) -> str:
        r"""The token's text for a list of logprobs; `bytes:\xe2\x82` when it is no whole characters.

        "" when there is no such token. Source of the spelling: OpenAI completions.
        """
        raw = self.token_bytes(token_id) or b""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def is_partial(self, token_id: int) -> bool:
        """Whether the token's text depends on its neighbours, because it stands for bytes rather than characters."""
        if token_id not in self._partial:
            self._partial[token_id] = self._find_partial(token_id)
        return self._partial[token_id]

    def _find_bytes(self, token_id: int) -> bytes | None:
        token = self._backend.id_to_token(token_id)
        if token is None:
            return None
        if self.byte_level:
            return byte_level_bytes(token)
        value = byte_fallback_value(token) if self._byte_fallback else None
        return self._text_after_anchor(token_id).encode("utf-8") if value is None else bytes((value,))

    def _find_partial(self, token_id: int) -> bool:
        token = self._backend.id_to_token(token_id)
        if token is None:
            return False
        if self._byte_fallback and byte_fallback_value(token) is not None:
            return True
        return _REPLACEMENT in self._text_after_anchor(token_id) and _REPLACEMENT not in token

    def _text_after_anchor(self, token_id: int) -> str:
        before = self.decode(self._anchor, skip_special_tokens=False)
        return self.decode([*self._anchor, token_id], skip_special_tokens=False)[len(before) :]

    def _find_anchor(self) -> list[int]:
        """An ordinary token that shields the next one from what decoders do to the start of a text."""
        found = (self.id_of(letter) for letter in ("a", "e", "the", "A"))
        return [token_id for token_id in found if token_id is not None][:1]

    def _named_id(self, name: str) -> int | None:
        return self.id_of(self.named_tokens[name]) if name in self.named_tokens else None

    def _add_missing_tokens(self, config: dict[str, Any]) -> None:
        known = {token.content for token in self._backend.get_added_tokens_decoder().values()}
        missing: dict[str, tokenizers.AddedToken] = {}
        for entry in _declared_tokens(config):
            token = _added_token(entry, special=_content(entry) in self.named_tokens.values())
            if token.content not in known:
                missing.setdefault(token.content, token)
        if missing:
            self._backend.add_tokens(list(missing.values()))


def read_tokenizer_config(path: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json; {} without the file.

    Configs from before `added_tokens_decoder` are completed and overruled by special_tokens_map.json.

    Raises:
        ArtifactError: A file is not a JSON object.
    """
    special = read_json_object(path / "special_tokens_map.json")
    config = read_json_object(path / "tokenizer_config.json")
    return config if "added_tokens_decoder" in config else config | special


def named_tokens_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Text of each named special token of a tokenizer config, such as {"bos_token": "<s>"}."""
    return {name: _content(config[name]) for name in _NAMED_TOKENS if config.get(name) is not None}


def read_json_object(file: Path) -> dict[str, Any]:
    """The object in a checkpoint's JSON file; {} without the file.

    Raises:
        ArtifactError: The file is not a JSON object.
    """
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArtifactError(f"the file is not JSON ({error})", where=str(file)) from error
    if not isinstance(content, dict):
        raise ArtifactError("the file is not a JSON object", where=str(file))
    return content


def _content(entry: Any) -> str:
    """The text of a token written as a string or as an object."""
    return str(entry["content"]) if isinstance(entry, dict) else str(entry)


def _declared_tokens(config: dict[str, Any]) -> Iterable[Any]:
    """Every token that the config names, in the order in which transformers adds them."""
    decoder = config.get("added_tokens_decoder") or {}
    yield from (decoder[key] for key in sorted(decoder, key=int))
    yield from (config[name] for name in _NAMED_TOKENS if config.get(name) is not None)
    for name in _LISTED_TOKENS:
        listed = config.get(name) or ()
        yield from listed.values() if isinstance(listed, dict) else listed


def _added_token(entry: Any, special: bool) -> tokenizers.AddedToken:
    if not isinstance(entry, dict):
        return tokenizers.AddedToken(str(entry), special=True)
    flags = {name: bool(entry[name]) for name in ("single_word", "lstrip", "rstrip", "normalized") if name in entry}
    return tokenizers.AddedToken(entry["content"], special=special or bool(entry.get("special")), **flags)


def _decoder_kinds(decoder: dict[str, Any] | None) -> set[str]:
    """Types of all steps of a decoder as tokenizer.json describes it."""
    if decoder is None:
        return set()
    if decoder["type"] == "Sequence":
        return {kind for step in decoder["decoders"] for kind in _decoder_kinds(step)}
    return {decoder["type"]}
