"""`llmpack generate`: one completion, printed while it is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from llmpack.cli.arguments import (
    ArtifactArgument,
    JsonOption,
    MaxTokensOption,
    SeedOption,
    StopOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from llmpack.cli.console import print_json
from llmpack.cli.local_model import load_local_model

if TYPE_CHECKING:
    from llmpack.runtime.request import SequenceOutput


def generate(
    artifact: ArtifactArgument,
    prompt: Annotated[str, typer.Argument(help="The text to continue; - reads it from stdin.")],
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    seed: SeedOption = None,
    stop: StopOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue a text. The prompt is taken as it is, without a chat template; `chat` uses the template."""
    text = sys.stdin.read() if prompt == "-" else prompt
    local = load_local_model(artifact)
    prompt_ids = local.model.tokenizer.encode(text, add_special_tokens=True)
    chosen = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "seed": seed,
        "stop": stop,
    }
    outputs: list[SequenceOutput] = []
    try:
        for output in local.stream(prompt_ids, local.build_params(chosen, len(prompt_ids))):
            outputs.append(output)
            if not as_json:
                typer.echo(output.text, nl=False)
    finally:
        if outputs and not as_json:
            typer.echo()
    if as_json:
        print_json(_report(prompt_ids, outputs))


def _report(prompt_ids: list[int], outputs: list[SequenceOutput]) -> dict[str, object]:
    return {
        "text": "".join(output.text for output in outputs),
        "prompt_token_ids": prompt_ids,
        "token_ids": [token_id for output in outputs for token_id in output.token_ids],
        "finish_reason": outputs[-1].finish_reason,
        "stop_reason": outputs[-1].stop_reason,
    }
