"""Target `triton-python`: prompt -> generated_text, all rows that Triton gathered in one batched generation.

execute([request, request, ...]) -> rows of all requests -> one Engine run -> rows back to their requests
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmpack.bundle.triton_runtime.failures import Cancelled, build_error, describe_failure
from llmpack.bundle.triton_runtime.loading import LoadedModel, load_model
from llmpack.bundle.triton_runtime.prompts import resolve_prompt
from llmpack.bundle.triton_runtime.sampling import build_params, parse_sampling_json
from llmpack.bundle.triton_runtime.text_request import read_parameters, read_tensors, read_texts
from llmpack.bundle.triton_runtime.triton_calls import log_failure
from llmpack.errors import EngineError, RequestError
from llmpack.runtime.request import GenerationRequest, SequenceOutput

_STEPS_BETWEEN_POLLS = 16
_BATCHES = "llmpack:batches_total"
_ROWS = "llmpack:batch_rows_total"


@dataclass(slots=True)
class _Answer:
    """The rows of one request: their sequences, their texts so far, or what went wrong."""

    request: Any
    sequences: list[GenerationRequest] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None

    def add(self, output: SequenceOutput) -> None:
        """Adds what came for one row; the first error is the request's."""
        self.texts[output.request_id] += output.text
        if output.finish_reason == "abort" and self.error is None:
            self.error = _why_aborted(output)


class BatchGeneration:
    """Serves requests whose rows Triton has batched, one batch at a time.

    Args:
        pb_utils: Triton's module.
        model: Loaded.
    """

    def __init__(self, pb_utils: Any, model: LoadedModel) -> None:
        self._pb_utils = pb_utils
        self._model = model
        self._ids = itertools.count()
        self._counters = self._build_counters()

    @classmethod
    def load(cls, pb_utils: Any, args: Mapping[str, str]) -> BatchGeneration:
        """The model of Triton's `initialize` arguments.

        Raises:
            pb_utils.TritonModelException: The artifact or the config cannot be used.
        """
        return cls(pb_utils, load_model(pb_utils, args))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One response per request, in order."""
        answers = [self._resolve(request) for request in requests]
        self._generate([answer for answer in answers if answer.error is None])
        return [self._respond(answer) for answer in answers]

    def close(self) -> None:
        """Nothing runs between two calls, so there is nothing to end; the name is the other target's."""

    def _resolve(self, request: Any) -> _Answer:
        answer = _Answer(request)
        try:
            tensors = read_tensors(request)
            prompts = read_texts(tensors, "prompt")
            for prompt, values in zip(prompts, _read_samplings(tensors, request, len(prompts)), strict=True):
                answer.sequences += self._resolve_row(prompt, values)
            answer.texts = {sequence.request_id: "" for sequence in answer.sequences}
        except Exception as error:  # one bad request must not end the batch
            answer.error = error
        return answer

    def _resolve_row(self, prompt: str, sampling: Mapping[str, Any]) -> list[GenerationRequest]:
        engine = self._model.engine
        params = build_params(sampling, self._model.settings.max_tokens)
        if params.n != 1:
            raise RequestError("one text per prompt", param="n", given=params.n, allowed="1")
        return resolve_prompt(prompt, params, f"row-{next(self._ids)}", engine.tokenizer, self._model.limits)

    def _generate(self, answers: Sequence[_Answer]) -> None:
        """Runs all rows to their end; the slots are free afterwards whatever happens."""
        engine = self._model.engine
        owners = {sequence.request_id: answer for answer in answers for sequence in answer.sequences}
        if not owners:
            return
        self._count(len(owners))
        for answer in answers:
            try:
                engine.add_all(answer.sequences)
            except RequestError as error:
                answer.error = error
        for step in itertools.count(1):
            if not engine.has_work:
                return
            for output in engine.step():
                owners[output.request_id].add(output)
            if step % _STEPS_BETWEEN_POLLS == 0:
                self._abort_cancelled(answers)

    def _abort_cancelled(self, answers: Sequence[_Answer]) -> None:
        for answer in answers:
            if answer.error is None and answer.request.is_cancelled():
                answer.error = Cancelled()
                for sequence in answer.sequences:
                    self._model.engine.abort(sequence.request_id)

    def _respond(self, answer: _Answer) -> Any:
        pb_utils = self._pb_utils
        if answer.error is not None:
            log_failure(pb_utils, answer.error)
            told = build_error(pb_utils, describe_failure(answer.error))
            return pb_utils.InferenceResponse(output_tensors=[], error=told)
        rows = [[text.encode("utf-8")] for text in answer.texts.values()]
        tensor = pb_utils.Tensor("generated_text", np.array(rows, dtype=np.object_))
        return pb_utils.InferenceResponse(output_tensors=[tensor])

    def _count(self, num_rows: int) -> None:
        if self._counters is not None:
            batches, rows = (metric for _, metric in self._counters)
            batches.increment(1)
            rows.increment(num_rows)

    def _build_counters(self) -> tuple[tuple[Any, Any], tuple[Any, Any]] | None:
        """Family and metric of each counter; a metric lives as long as its family."""
        settings = self._model.settings
        if not settings.report_metrics:
            return None
        labels = {"model": settings.model_name, "version": settings.model_version}
        kind = self._pb_utils.MetricFamily
        batches = kind(name=_BATCHES, description="Batched generations.", kind=kind.COUNTER)
        rows = kind(name=_ROWS, description="Prompts in batched generations.", kind=kind.COUNTER)
        return (batches, batches.Metric(labels=labels)), (rows, rows.Metric(labels=labels))


def _read_samplings(tensors: Mapping[str, Any], request: Any, num_rows: int) -> list[dict[str, Any]]:
    """The sampling parameters of each row: the tensor's, else the request's own for all."""
    if "sampling_parameters" not in tensors:
        return [read_parameters(request.parameters())] * num_rows
    samplings = [parse_sampling_json(text) for text in read_texts(tensors, "sampling_parameters")]
    if len(samplings) != num_rows:
        raise RequestError(
            "one text per prompt", param="sampling_parameters", given=len(samplings), allowed=str(num_rows)
        )
    return samplings


def _why_aborted(output: SequenceOutput) -> Exception:
    if output.error is not None and output.error_param is not None:
        return RequestError(output.error, param=output.error_param)
    return EngineError(output.error or "the generation was ended")
