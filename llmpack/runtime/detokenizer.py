"""Token ids to text, one at a time, exactly as decoding them all at once would give it.

Text is released when no later token can change it. At the end `flush` gives the rest, with U+FFFD for bytes that
never became a character. No text of the prompt is ever released.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

from llmpack.runtime.tokenizer import Tokenizer

_CONTEXT_LEN = 8


class _Decoder(Protocol):
    """Decodes visible tokens."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...

    @property
    def has_pending(self) -> bool: ...


class IncrementalDetokenizer:
    """Streams the text of one sequence; amortised O(1) per token.

    The text is that of `Tokenizer.decode` over the output ids after the prompt: a space that decoding drops at the
    start of a text is kept when the last eight prompt ids hold a visible token of whole characters.

    Args:
        tokenizer: The model's tokenizer.
        prompt_ids: The prompt; only its last eight ids matter.
        skip_special_tokens: Whether special tokens are left out of the text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], skip_special_tokens: bool) -> None:
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        context = [token_id for token_id in prompt_ids[-_CONTEXT_LEN:] if token_id not in self._hidden]
        self._decoder: _Decoder = _ByteLevel(tokenizer) if tokenizer.byte_level else _Anchored(tokenizer, context)

    @property
    def has_pending(self) -> bool:
        """Whether a pushed token's text is still (in part) held back."""
        return self._decoder.has_pending

    def push(self, token_id: int) -> str:
        """The text that this token makes certain."""
        return "" if token_id in self._hidden else self._decoder.push(token_id)

    def flush(self) -> str:
        """The text still held back. Push nothing afterwards."""
        return self._decoder.flush()


class _ByteLevel:
    """Each token is bytes, the text is their UTF-8 decoding. Needs no context."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def has_pending(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def push(self, token_id: int) -> str:
        return self._utf8.decode(self._tokenizer.token_bytes(token_id) or b"")

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _Anchored:
    """Every token's text is what it adds after the last ordinary token, the anchor.

    Decoders turn a run of byte tokens into characters or, when the run as a whole is not UTF-8, into one U+FFFD per
    byte. Such a run is certain only when an ordinary token follows, so it waits:

        anchor | <0xE2> <0x82> <0xAC> | next        decode(anchor + run + next) minus decode(anchor)
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        known = (token_id for token_id in reversed(context) if tokenizer.token_bytes(token_id) is not None)
        ordinary = (token_id for token_id in known if not tokenizer.is_partial(token_id))
        self._anchor = list(ordinary)[:1]
        self._run: list[int] = []

    @property
    def has_pending(self) -> bool:
        return bool(self._run)

    def push(self, token_id: int) -> str:
        if self._tokenizer.token_bytes(token_id) is None:
            return ""  # padding of the vocabulary: it must not become the anchor
        self._run.append(token_id)
        if self._tokenizer.is_partial(token_id):
            return ""
        text = self.flush()
        self._anchor = [token_id]
        return text

    def flush(self) -> str:
        run, self._run = self._run, []
        return self._decode([*self._anchor, *run])[len(self._decode(self._anchor)) :]

    def _decode(self, ids: list[int]) -> str:
        # Hidden tokens never get here, so nothing is left to skip.
        return self._tokenizer.decode(ids, skip_special_tokens=False)
