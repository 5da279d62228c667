"""Prompts as text, for servers that take no token ids."""

from __future__ import annotations

from llmpack.runtime.tokenizer import Tokenizer


def find_usable_ids(tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """Ids that a prompt may be made of: those that have a text and are not special.

    Args:
        tokenizer: The model's.
        vocab_size: Width of the logits; the tokenizer may know fewer tokens, or more.
    """
    known = range(min(vocab_size, tokenizer.vocab_size))
    return tuple(token_id for token_id in known if not tokenizer.is_special(token_id))


def to_text(tokenizer: Tokenizer, prompt_ids: tuple[int, ...]) -> tuple[str, int]:
    """A text of about these tokens, and its length in tokens, special ones included, which is never larger.

    Random tokens do not survive the way through text: some merge, some are no UTF-8 alone. So the prompt is shortened
    until it fits; should not even one token fit, the shortest text is given.
    """
    num_ids = len(prompt_ids)
    while True:
        text = tokenizer.decode(prompt_ids[:num_ids])
        num_tokens = len(tokenizer.encode(text, add_special_tokens=True))
        if num_tokens <= len(prompt_ids) or num_ids == 1:
            return text, num_tokens
        num_ids = max(1, min(num_ids - 1, num_ids * len(prompt_ids) // num_tokens))
