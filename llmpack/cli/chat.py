"""`llmpack chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from llmpack.cli.arguments import (
    ArtifactArgument,
    MaxTokensOption,
    SeedOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from llmpack.cli.console import talk
from llmpack.cli.local_model import LocalModel, load_local_model


def chat(
    artifact: ArtifactArgument,
    system: Annotated[str | None, typer.Option("--system", help="A system message to begin with.")] = None,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    seed: SeedOption = None,
) -> None:
    """Talk to a model.

    The conversation goes through the model's chat template. End with Ctrl-D; Ctrl-C stops an answer.
    """
    local = load_local_model(artifact)
    local.model.require_chat_template()
    chosen = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
    }
    messages = [{"role": "system", "content": system}] if system else []
    for question in _read_questions():
        messages.append({"role": "user", "content": question})
        answer = _answer(local, messages, chosen)
        messages.append({"role": "assistant", "content": answer})


def _read_questions() -> Iterator[str]:
    """Lines that are not blank; the prompt mark appears only before a person."""
    mark = "> " if sys.stdin.isatty() else ""
    while True:
        typer.echo(mark, nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


def _answer(local: LocalModel, messages: list[dict[str, str]], chosen: dict[str, Any]) -> str:
    """Prints the answer while it is made, and returns what was printed.

    Raises:
        ContextLengthExceeded: The conversation no longer fits the slot.
    """
    prompt = local.model.require_chat_template().render(messages)
    prompt_ids = local.model.tokenizer.encode(prompt, add_special_tokens=False)
    outputs = local.stream(prompt_ids, local.build_params(chosen, len(prompt_ids)))
    pieces: list[str] = []
    try:
        for output in outputs:
            pieces.append(output.text)
            typer.echo(output.text, nl=False)
    except KeyboardInterrupt:
        talk(" (stopped)")
    finally:
        if pieces:
            typer.echo()
    return "".join(pieces)
