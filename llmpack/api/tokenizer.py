"""The engine's tokenizer under the names of transformers' ones.

Source: transformers 5 `PreTrainedTokenizerBase` (names, defaults, which of them decode and template tokenize).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from llmpack.errors import RequestError
from llmpack.runtime.chat_template import ChatTemplate
from llmpack.runtime.tokenizer import Tokenizer


class EngineTokenizer:
    """What a script asks a transformers tokenizer for, without transformers.

    `AutoTokenizer.from_pretrained(artifact)` gives the same ids and has everything else.

    Args:
        tokenizer: The model's.
        template: None when the model has no chat template.

    Attributes:
        bos_token: Its text; None when the model has none, as for the other named tokens.
        bos_token_id: Its id.
        eos_token: Its text.
        eos_token_id: Its id; a model may have further ones, which end its texts all the same.
        all_special_ids: Ids that `skip_special_tokens` hides, ascending.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self.bos_token = tokenizer.named_tokens.get("bos_token")
        self.bos_token_id = tokenizer.bos_token_id
        self.eos_token = tokenizer.named_tokens.get("eos_token")
        self.eos_token_id = tokenizer.eos_token_id
        self.all_special_ids = sorted(tokenizer.special_ids)

    def __len__(self) -> int:
        return self._tokenizer.vocab_size

    @property
    def added_tokens_decoder(self) -> Mapping[int, tokenizers.AddedToken]:
        """Added tokens by id, special or not; their text is `content`."""
        return self._tokenizer.added_tokens

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`.

        Raises:
            RequestError: The text holds a lone surrogate.
        """
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Id of the vocabulary entry `token`; None when there is none."""
        return self._tokenizer.id_of(token)

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **template_kwargs: Any,
    ) -> str | list[int]:
        """The conversation as the model was trained to read it, as ids or with tokenize=False as text.

        Args:
            conversation: OpenAI messages.
            add_generation_prompt: End with the opening of an assistant message.
            continue_final_message: End inside the last message.
            tokenize: Whether to encode the text; the template has written all special tokens.
            template_kwargs: Further variables of the template.

        Raises:
            RequestError: There is no template, or it failed.
        """
        text = require_template(self._template).render(
            conversation,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            kwargs=template_kwargs,
        )
        return self._tokenizer.encode(text, add_special_tokens=False) if tokenize else text


def require_template(template: ChatTemplate | None) -> ChatTemplate:
    """The template.

    Raises:
        RequestError: The model has none.
    """
    if template is None:
        raise RequestError(
            "this model has no chat template",
            param="messages",
            code="chat_template_missing",
            next_step="Write the prompt yourself and use generate().",
        )
    return template
