"""One instance of a model as a process of its own: commands in on stdin, what happened out on stdout, JSON lines.

    python -m tests.bundle.instance_process DIR NAME     DIR stands for the model's directory, NAME for the instance

Commands: {"ask": number, "text": ..., "sampling": {...}, "n_asks": count}, {"cancel": number}, {"close": true}.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from llmpack.bundle.triton_runtime.instance_group import InstanceGroup
from llmpack.bundle.triton_runtime.loading import LoadedModel
from llmpack.bundle.triton_runtime.text_generation import TextGeneration
from llmpack.runtime.tokenizer import Tokenizer
from tests.bundle.fake_triton import FakeTriton, Request
from tests.bundle.models import load_scripted

MODEL_CONFIG = json.dumps({"instance_group": [{"count": 3, "kind": "KIND_CPU"}]})
_printing = threading.Lock()


def tell(**facts: Any) -> None:
    with _printing:
        print(json.dumps(facts), flush=True)  # noqa: T201 - the test reads it


def load(triton: FakeTriton, directory: Path) -> LoadedModel:
    if (directory / "broken").exists():
        raise triton.TritonModelException("the artifact is altered")
    tell(loaded=True)
    return load_scripted(Tokenizer.from_directory(directory), step_time_s=0.01)


def watch(number: int, request: Request) -> None:
    """Tells how a request ended."""
    request.sender.first.wait(30)
    tell(first=number)
    assert request.sender.done.wait(30)
    *_, last = request.sender.responses
    error = None if last.error is None else [last.error.code, last.error.message]
    parts = [response for response in request.sender.responses if response.error is None]
    num_choices = max((len(part.outputs["text_output"]) for part in parts), default=0)
    texts = [b"".join(part.outputs["text_output"][choice] for part in parts).decode() for choice in range(num_choices)]
    tell(ended=number, texts=texts, num_responses=len(parts), error=error)


def main(directory: Path, name: str) -> None:
    triton = FakeTriton(directory)
    args = {"model_config": MODEL_CONFIG, "model_version": "1", "model_instance_name": name}
    group = InstanceGroup.read(args, directory)
    try:
        model = TextGeneration(triton, lambda: load(triton, directory), group)
    except triton.TritonModelException as error:
        tell(refused=str(error))
        return
    tell(ready=True)
    requests: dict[int, Request] = {}
    for line in sys.stdin:
        command = json.loads(line)
        if "ask" in command:
            number = command["ask"]
            sampling = json.dumps({"temperature": 0, "max_tokens": 200, **command.get("sampling", {})})
            requests[number] = Request(text_input=command["text"], stream=True, sampling_parameters=sampling)
            model.execute([requests[number]])
            threading.Thread(target=watch, args=(number, requests[number]), daemon=True).start()
        elif "cancel" in command:
            requests[command["cancel"]].sender.cancelled = True
        elif "metrics" in command:
            tell(metrics=dict(triton.MetricFamily.values))
        else:
            break
    model.close()
    threads = [thread.name for thread in threading.enumerate()]
    tell(closed=True, errors=triton.Logger.errors, threads=threads, socket=group.address(0).replace("\0", "@"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
