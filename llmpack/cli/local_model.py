"""A model that runs inside the command itself, without a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmpack.cli.console import stderr_console

if TYPE_CHECKING:
    from llmpack.runtime.engine import Engine
    from llmpack.runtime.request import SequenceOutput
    from llmpack.runtime.sampling_params import SamplingParams
    from llmpack.server.served_model import ServedModel

_REQUEST_ID = "cli"

DEFAULT_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class LocalModel:
    """An engine and what is needed to talk to it."""

    engine: Engine
    model: ServedModel

    def build_params(self, chosen: Mapping[str, Any], num_prompt_tokens: int) -> SamplingParams:
        """Sampling parameters: what was chosen, else what the model's generation_config.json says.

        Without a chosen max_tokens the output may fill the slot, up to `DEFAULT_MAX_TOKENS`.

        Raises:
            RequestError: A value is out of its range.
        """
        from llmpack.runtime.sampling_params import SamplingParams

        room = self.model.limits.max_seq_len - num_prompt_tokens
        defaults = {**self.model.sampling_defaults, "max_tokens": max(1, min(DEFAULT_MAX_TOKENS, room))}
        given = {name: value for name, value in chosen.items() if value is not None}
        return SamplingParams(**{**defaults, **given})

    def stream(self, prompt_ids: Sequence[int], params: SamplingParams) -> Iterator[SequenceOutput]:
        """Outputs of one sequence until it finishes; leaving the loop early frees its slot.

        Raises:
            RequestError: The prompt is empty or does not fit, or the parameters allow no token.
            EngineError: The model's logits are no numbers.
        """
        from llmpack.runtime.resolve import resolve_requests

        tokenizer, limits = self.model.tokenizer, self.model.limits
        requests = resolve_requests(params, prompt_ids, request_id=_REQUEST_ID, tokenizer=tokenizer, limits=limits)
        self.engine.add_all(requests)
        try:
            while self.engine.has_work:
                yield from map(_check, self.engine.step())
        finally:
            self.engine.abort(_REQUEST_ID)
            while self.engine.has_work:
                self.engine.step()


def _check(output: SequenceOutput) -> SequenceOutput:
    from llmpack.errors import EngineError, RequestError

    if output.error is None:
        return output
    if output.error_param is not None:
        raise RequestError(output.error, param=output.error_param)
    raise EngineError(output.error)


def load_local_model(path: Path) -> LocalModel:
    """The checked artifact at `path`, ready to generate.

    Raises:
        ArtifactError: The artifact cannot be used.
    """
    from llmpack.artifact.reader import open_artifact
    from llmpack.runtime.engine import EngineOptions
    from llmpack.runtime.load import load_engine
    from llmpack.server.served_model import ServedModel

    with stderr_console().status("loading"):
        artifact = open_artifact(path)
        engine = load_engine(artifact, EngineOptions())
        return LocalModel(engine, ServedModel.from_artifact(artifact.path, artifact.manifest))
