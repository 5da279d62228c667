"""Tokenizer files of a .gguf: tokenizer.json and tokenizer_config.json from its metadata.

Source: llama.cpp's src/llama-vocab.cpp (token types, defaults, what each pre-tokenizer name splits on) and the
tokenizer.json files that Hugging Face publishes for gpt2, SmolLM2, Llama 3, Qwen2 and Llama 2.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llmpack.checkpoint.gguf_file import GgufFile
from llmpack.errors import CorruptCheckpoint, UnsupportedArchitecture

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 3, 4, 5, 6
_BLANK = "\u2581"  # SentencePiece's sign for a space

_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")

Json = dict[str, Any]


@dataclass(frozen=True)
class GgufVocabulary:
    """The tokenizer's part of the metadata, with llama.cpp's defaults filled in.

    Attributes:
        model: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
        tokens: By id.
        types: ggml's token type by id (1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte).
        bos_token_id, eos_token_id, unk_token_id, pad_token_id: Or None.
        end_of_turn_ids: Further ids that end a turn.
        add_bos: Encoding begins with BOS.
        add_eos: Encoding ends with EOS.
        chat_template: Or None.
    """

    model: str
    tokens: list[str]
    types: list[int]
    bos_token_id: int | None
    eos_token_id: int | None
    unk_token_id: int | None
    pad_token_id: int | None
    end_of_turn_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    chat_template: str | None

    def token(self, token_id: int | None) -> str | None:
        """The token's text."""
        return None if token_id is None else self.tokens[token_id]


@dataclass(frozen=True)
class _Splitter:
    """What a pre-tokenizer name means: how text is normalised and split, and whether whole words skip the merges."""

    pre_tokenizer: Json
    normalizer: Json | None = None
    ignore_merges: bool = False
    add_bos: bool = False


def _byte_level(use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _sequence(*steps: Json) -> Json:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_LLAMA3 = _Splitter(_sequence(_split(_LLAMA3_SPLIT), _byte_level(False)), ignore_merges=True, add_bos=True)
_SPLITTERS = {
    "gpt-2": _Splitter(_byte_level(True)),
    "smollm": _Splitter(_sequence({"type": "Digits", "individual_digits": True}, _byte_level(True))),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _Splitter(_sequence(_split(_QWEN2_SPLIT), _byte_level(False)), normalizer={"type": "NFC"}),
}


def read_vocabulary(file: GgufFile) -> GgufVocabulary:
    """The vocabulary of `file`.

    Raises:
        CorruptCheckpoint: Tokens are missing or repeated, or an id lies outside the vocabulary.
        UnsupportedArchitecture: Another tokenizer than byte-level or SentencePiece BPE.
    """

    def get(key: str, default: Any = None) -> Any:
        return file.metadata.get(f"tokenizer.ggml.{key}", default)

    model, tokens = get("model"), get("tokens") or []
    if model not in ("gpt2", "llama"):
        raise UnsupportedArchitecture(
            "unknown kind of tokenizer", where=f"{file.path}, tokenizer.ggml.model", given=model, allowed="gpt2, llama"
        )
    sentencepiece = model == "llama"
    defaults = {"bos": 1, "eos": 2, "unknown": 0} if sentencepiece else {}
    ids = {name: get(f"{name}_token_id", defaults.get(name)) for name in ("bos", "eos", "unknown", "padding")}
    ends = tuple(get(f"{name}_token_id") for name in ("eot", "eom") if get(f"{name}_token_id") is not None)
    _check_tokens(file, tokens, [*ids.values(), *ends])
    adds_bos = sentencepiece or _find_splitter(file).add_bos
    return GgufVocabulary(
        model=model,
        tokens=tokens,
        types=get("token_type") or [_NORMAL] * len(tokens),
        bos_token_id=ids["bos"],
        eos_token_id=ids["eos"],
        unk_token_id=ids["unknown"],
        pad_token_id=ids["padding"],
        end_of_turn_ids=ends,
        add_bos=bool(get("add_bos_token", adds_bos)) and ids["bos"] is not None,
        add_eos=bool(get("add_eos_token", False)) and ids["eos"] is not None,
        chat_template=file.metadata.get("tokenizer.chat_template"),
    )


def build_tokenizer_files(file: GgufFile, vocabulary: GgufVocabulary, model_max_length: int) -> dict[str, bytes]:
    """tokenizer.json, tokenizer_config.json, special_tokens_map.json and, if there is one, chat_template.jinja.

    Raises:
        CorruptCheckpoint: Merges or scores are missing.
        UnsupportedArchitecture: A pre-tokenizer that is not known.
    """
    build = _build_sentencepiece if vocabulary.model == "llama" else _build_byte_level
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        "post_processor": _post_processor(vocabulary),
        **build(file, vocabulary),
    }
    special = {
        "bos_token": vocabulary.token(vocabulary.bos_token_id),
        "eos_token": vocabulary.token(vocabulary.eos_token_id),
        "unk_token": vocabulary.token(vocabulary.unk_token_id),
        "pad_token": vocabulary.token(vocabulary.pad_token_id),
    }
    special = {name: token for name, token in special.items() if token is not None}
    config = {
        # The class that takes tokenizer.json as it is; GPT2Tokenizer and LlamaTokenizer rebuild parts of it.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "model_max_length": model_max_length,
        "clean_up_tokenization_spaces": False,
    }
    files = {
        "tokenizer.json": _to_bytes(tokenizer),
        "tokenizer_config.json": _to_bytes(config),
        "special_tokens_map.json": _to_bytes(special),
    }
    template = vocabulary.chat_template
    return files | ({"chat_template.jinja": template.encode()} if template else {})


def _to_bytes(value: Json) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _check_tokens(file: GgufFile, tokens: list[str], ids: list[int | None]) -> None:
    problems = [f"token id {token_id} is outside it" for token_id in ids if token_id and token_id >= len(tokens)]
    if not tokens:
        problems = ["tokenizer.ggml.tokens is missing"]
    if len(set(tokens)) < len(tokens):
        problems.append(f"{len(tokens) - len(set(tokens))} tokens stand there twice")
    if problems:
        what = f"the vocabulary of {len(tokens)} tokens cannot be used: {'; '.join(problems)}"
        raise CorruptCheckpoint(what, where=str(file.path))


def _find_splitter(file: GgufFile) -> _Splitter:
    name = file.metadata.get("tokenizer.ggml.pre")
    if name not in _SPLITTERS:
        raise UnsupportedArchitecture(
            "unknown pre-tokenizer; a wrong guess would quietly change the token ids",
            where=f"{file.path}, tokenizer.ggml.pre",
            given=name or "none (an old file)",
            allowed=", ".join(sorted(_SPLITTERS)),
            next_step="Pass the Hugging Face checkpoint of the same model.",
        )
    return _SPLITTERS[name]


def _added_tokens(vocabulary: GgufVocabulary) -> list[Json]:
    added = []
    for token_id, (content, kind) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True)):
        if kind in (_CONTROL, _USER_DEFINED) or token_id == vocabulary.unk_token_id:
            added.append(_added_token(token_id, content, special=kind != _USER_DEFINED))
    return added


def _added_token(token_id: int, content: str, *, special: bool) -> Json:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, **flags, "special": special}


def _post_processor(vocabulary: GgufVocabulary) -> Json | None:
    """The template that adds BOS and EOS, or None when neither is added."""
    begin = vocabulary.token(vocabulary.bos_token_id) if vocabulary.add_bos else None
    end = vocabulary.token(vocabulary.eos_token_id) if vocabulary.add_eos else None
    if begin is None and end is None:
        return None

    def template(*texts: str) -> list[Json]:
        pieces: list[Json] = []
        for type_id, text in enumerate(texts):
            pieces += [{"SpecialToken": {"id": begin, "type_id": type_id}}] if begin else []
            pieces.append({"Sequence": {"id": text, "type_id": type_id}})
            pieces += [{"SpecialToken": {"id": end, "type_id": type_id}}] if end else []
        return pieces

    used = {token: vocabulary.tokens.index(token) for token in (begin, end) if token}
    return {
        "type": "TemplateProcessing",
        "single": template("A"),
        "pair": template("A", "B"),
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in used.items()},
    }


def _bpe(vocabulary: GgufVocabulary, merges: list[list[str]], **settings: Any) -> Json:
    # Ids that the model has and nobody uses stay out, as in the files they were made from.
    used = {token: i for i, token in enumerate(vocabulary.tokens) if vocabulary.types[i] != _UNUSED}
    defaults = {"unk_token": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    unset = dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
    return {"type": "BPE", **unset, **defaults, **settings, "vocab": used, "merges": merges}


def _build_byte_level(file: GgufFile, vocabulary: GgufVocabulary) -> Json:
    splitter = _find_splitter(file)
    merges = _read_merges(file)
    if merges is None:
        raise CorruptCheckpoint("tokenizer.ggml.merges is missing", where=str(file.path))
    return {
        "normalizer": splitter.normalizer,
        "pre_tokenizer": splitter.pre_tokenizer,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(vocabulary, merges, ignore_merges=splitter.ignore_merges),
    }


def _read_merges(file: GgufFile) -> list[list[str]] | None:
    merges = file.metadata.get("tokenizer.ggml.merges")
    return [merge.split(" ", 1) for merge in merges] if merges else None


def _build_sentencepiece(file: GgufFile, vocabulary: GgufVocabulary) -> Json:
    prefix = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    if file.metadata.get("tokenizer.ggml.remove_extra_whitespaces", False):
        raise UnsupportedArchitecture("removing extra white space is not supported", where=str(file.path))
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": _BLANK}
    spaces = {"type": "Replace", "pattern": {"String": _BLANK}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    prepend = {"type": "Prepend", "prepend": _BLANK}
    decoders = [spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *([strip] if prefix else [])]
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*([prepend] if prefix else []), blank]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            vocabulary,
            _read_merges(file) or _merges_from_scores(file, vocabulary),
            unk_token=vocabulary.token(vocabulary.unk_token_id),
            fuse_unk=True,
            byte_fallback=_BYTE in vocabulary.types,
        ),
    }


def _merges_from_scores(file: GgufFile, vocabulary: GgufVocabulary) -> list[list[str]]:
    """SentencePiece ranks pieces by score; BPE ranks pairs: every split of a piece into two pieces is a pair."""
    scores: list[float] = file.metadata.get("tokenizer.ggml.scores") or []
    if len(scores) != len(vocabulary.tokens):
        raise CorruptCheckpoint("tokenizer.ggml.scores does not fit the tokens", where=str(file.path))
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if vocabulary.types[i] == _NORMAL}
    ranked = []
    for token, token_id in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[token_id], token_id, ids[left], ids[right], left, right))
    return [[left, right] for *_, left, right in sorted(ranked)]
