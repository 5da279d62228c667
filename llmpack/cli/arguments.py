"""Arguments and options that several commands take, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ArtifactArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The compiled directory.")]
MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", help="Output tokens at most. [default: 256]")]
TemperatureOption = Annotated[float | None, typer.Option("--temperature", help="0 is greedy. [default: the model's]")]
TopPOption = Annotated[float | None, typer.Option("--top-p", help="In (0, 1]. [default: the model's]")]
TopKOption = Annotated[int | None, typer.Option("--top-k", help="0 keeps all. [default: the model's]")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Makes sampled output repeatable.")]
StopOption = Annotated[list[str] | None, typer.Option("--stop", help="Ends the output; may be given again.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
AbsolutePathsOption = Annotated[
    bool, typer.Option("--absolute-paths", help="Name the artifact where it lies instead of taking it along.")
]
