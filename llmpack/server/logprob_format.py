"""Log-probabilities as the two OpenAI routes and vLLM's prompt_logprobs write them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from llmpack.runtime.request import TokenLogprobs
from llmpack.runtime.tokenizer import Tokenizer
from llmpack.server.responses import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)


class TokenNames:
    """Names of tokens in answers: their texts, or their ids."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def name(self, token_id: int) -> str:
        """The token's name; `token_id:42` when ids were asked for."""
        if self._as_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.token_text(token_id)

    def raw(self, token_id: int) -> bytes:
        """The token's UTF-8 bytes, whole or not."""
        return self._tokenizer.token_bytes(token_id) or b""

    def by_name(self, pairs: Iterable[tuple[int, float]]) -> dict[str, float]:
        """Log-probabilities by name; of two tokens with one text, the later goes by its bytes, or by its id."""
        named: dict[str, float] = {}
        for token_id, logprob in pairs:
            names = (self.name(token_id), _escaped(self.raw(token_id)), f"token_id:{token_id}")
            named[next(name for name in names if name not in named)] = logprob
        return named

    def is_hidden(self, token_id: int) -> bool:
        """Whether the token has no text when special tokens are skipped."""
        return self._tokenizer.is_special(token_id)


def _escaped(raw: bytes) -> str:
    return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class TextOffsets:
    """Where each token starts in a text, in code points, counted token by token.

    Args:
        names: Gives the tokens' bytes.
        start: Length of the text before the first token.
        skip_special: Special tokens have no text.
    """

    def __init__(self, names: TokenNames, *, start: int = 0, skip_special: bool = True) -> None:
        self._names = names
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.position = start

    def next(self, token_id: int) -> int:
        """The offset of `token_id`, which stands after all tokens seen before."""
        here = self.position
        if not (self._skip_special and self._names.is_hidden(token_id)):
            self.position += len(self._decoder.decode(self._names.raw(token_id)))
        return here


def completion_logprobs(
    entries: Sequence[TokenLogprobs], num_top: int, names: TokenNames, offsets: TextOffsets, text_len: int
) -> CompletionLogprobs:
    """The completions form of output tokens.

    Args:
        entries: One per token.
        num_top: Alternatives beside the chosen token.
        names: Names of tokens.
        offsets: Of the choice; advanced.
        text_len: Length of the choice's text up to here. A cut-off stop string has its offsets at the end.
    """
    return CompletionLogprobs(
        text_offset=[min(offsets.next(entry.token_id), text_len) for entry in entries],
        token_logprobs=[entry.logprob for entry in entries],
        tokens=[names.name(entry.token_id) for entry in entries],
        top_logprobs=[_top_and_chosen(entry, num_top, names) for entry in entries],
    )


def echoed_logprobs(
    entries: Sequence[TokenLogprobs | None],
    prompt_ids: Sequence[int],
    num_top: int,
    names: TokenNames,
    text_len: int,
) -> CompletionLogprobs:
    """The completions form of the prompt's tokens; the first has no log-probability."""
    offsets = TextOffsets(names)
    starts = [offsets.next(token_id) for token_id in prompt_ids]
    surplus = max(0, offsets.position - text_len)  # the space that SentencePiece writes before a text's first word
    return CompletionLogprobs(
        text_offset=[max(0, start - surplus) for start in starts],
        token_logprobs=[None if entry is None else entry.logprob for entry in entries],
        tokens=[names.name(token_id) for token_id in prompt_ids],
        top_logprobs=[None if entry is None else _top_and_chosen(entry, num_top, names) for entry in entries],
    )


def joined(first: CompletionLogprobs | None, second: CompletionLogprobs | None) -> CompletionLogprobs | None:
    """The two one after the other; None is empty."""
    if first is None or second is None:
        return first or second
    return CompletionLogprobs(
        text_offset=first.text_offset + second.text_offset,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        tokens=first.tokens + second.tokens,
        top_logprobs=first.top_logprobs + second.top_logprobs,
    )


def _top_and_chosen(entry: TokenLogprobs, num_top: int, names: TokenNames) -> dict[str, float]:
    pairs = list(zip(entry.top_ids[:num_top], entry.top_logprobs[:num_top], strict=True))
    if entry.token_id not in entry.top_ids[:num_top]:
        pairs.append((entry.token_id, entry.logprob))
    return names.by_name(pairs)


def chat_logprobs(entries: Iterable[TokenLogprobs], num_top: int, names: TokenNames) -> ChatLogprobs:
    """The chat form of output tokens, with `num_top` alternatives each."""
    return ChatLogprobs(content=[_chat_entry(entry, num_top, names) for entry in entries])


def _chat_entry(entry: TokenLogprobs, num_top: int, names: TokenNames) -> TokenLogprob:
    top = zip(entry.top_ids[:num_top], entry.top_logprobs[:num_top], strict=True)
    return TokenLogprob(
        token=names.name(entry.token_id),
        logprob=entry.logprob,
        bytes=list(names.raw(entry.token_id)),
        top_logprobs=[TopLogprob(names.name(top_id), logprob, list(names.raw(top_id))) for top_id, logprob in top],
    )


def prompt_logprobs(entries: Sequence[TokenLogprobs | None], num_top: int | None, names: TokenNames) -> PromptLogprobs:
    """The form that vLLM gives them: by position, token id as a string -> candidate; the first position is null.

    Args:
        entries: One per prompt token.
        num_top: Candidates beside the prompt's own token; None or -1 for as many as there are.
        names: Names of tokens.
    """
    return [None if entry is None else _prompt_entry(entry, num_top, names) for entry in entries]


def _prompt_entry(entry: TokenLogprobs, num_top: int | None, names: TokenNames) -> dict[str, PromptLogprob]:
    num_kept = len(entry.top_ids) if num_top in (None, -1) else num_top
    own = PromptLogprob(entry.logprob, entry.rank, names.name(entry.token_id))
    candidates = {str(entry.token_id): own}
    top = zip(entry.top_ids[:num_kept], entry.top_logprobs[:num_kept], strict=True)
    for rank, (token_id, logprob) in enumerate(top, start=1):
        candidates.setdefault(str(token_id), PromptLogprob(logprob, rank, names.name(token_id)))
    return candidates
