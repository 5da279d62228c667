"""What each peer needs: its environment, its model files, the command of its driver."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from llmpack.artifact.manifest import Manifest
from llmpack.bench.timing import RequestTimes, Round
from llmpack.bench.workload import PlannedRequest
from llmpack.errors import BenchError

HERE = Path(__file__).parent
WORK = HERE.parent / ".bench"
DRIVERS = HERE / "drivers"

GGUF_KINDS = {"float32": "F32", "bfloat16": "BF16"}
OPENVINO_FORMATS = {"float32": "fp32", "bfloat16": "fp16"}  # bf16 is what it then computes in


@dataclass(frozen=True)
class Model:
    """What is measured.

    Attributes:
        checkpoint: Of random weights.
        manifest: Of the artifact compiled from it; peers get its precision and shapes.
    """

    checkpoint: Path
    manifest: Manifest


def environment_python(peer: str) -> str:
    """The interpreter of a peer's environment, which is made when it is missing."""
    folder = WORK / "environments" / peer
    if not (folder / "complete").exists():
        subprocess.run([str(HERE / "install"), peer], check=True)
    return str(folder / "bin" / "python")


def transformers_command(model: Model) -> list[str]:
    """Runs the checkpoint itself."""
    python = environment_python("transformers")
    return [python, str(DRIVERS / "transformers_driver.py"), str(model.checkpoint), model.manifest.dtype]


def llama_cpp_command(model: Model) -> list[str]:
    """Runs a .gguf file made of the checkpoint."""
    python, kind = environment_python("llama-cpp"), GGUF_KINDS[model.manifest.dtype]
    target = model.checkpoint.with_name(f"{model.checkpoint.name}-{kind}.gguf")
    if not target.exists():
        part = target.with_suffix(".part")
        subprocess.run(
            [python, str(DRIVERS / "write_gguf.py"), str(model.checkpoint), str(part), kind], check=True, stdout=2
        )
        part.rename(target)
    shape = (str(model.manifest.batch_size), str(model.manifest.max_seq_len))
    return [python, str(DRIVERS / "llama_cpp_driver.py"), str(target), *shape]


def openvino_command(model: Model) -> list[str]:
    """Runs what optimum exports of the checkpoint."""
    python, kind = environment_python("openvino-genai"), OPENVINO_FORMATS[model.manifest.dtype]
    target = model.checkpoint.with_name(f"{model.checkpoint.name}-openvino-{kind}")
    if not target.exists():
        part = target.with_name(f"{target.name}.part")
        export = [str(Path(python).with_name("optimum-cli")), "export", "openvino", "--model", str(model.checkpoint)]
        export += ["--task", "text-generation-with-past", "--weight-format", kind, str(part)]
        subprocess.run(export, check=True, stdout=2)
        part.rename(target)
    return [python, str(DRIVERS / "openvino_genai_driver.py"), str(target), model.manifest.dtype]


PEERS: dict[str, Callable[[Model], list[str]]] = {
    "transformers": transformers_command,
    "llama-cpp": llama_cpp_command,
    "openvino-genai": openvino_command,
}


class PeerTarget:
    """A peer's process, as something that runs loads.

    Args:
        name: Of the peer.
        command: Of its driver.
    """

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._peak_bytes: int | None = None
        environment = {**os.environ, "PYTHONPATH": str(DRIVERS)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> Self:
        """Waits until its model is loaded."""
        self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, requests: Sequence[PlannedRequest], concurrency: int) -> Round:
        """One round in the peer's process."""
        jobs = [{"prompt_ids": each.prompt_ids, "max_tokens": each.max_tokens} for each in requests]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"concurrency": concurrency, "requests": jobs}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        self._peak_bytes = answer["peak_memory_bytes"]
        pairs = zip(requests, answer["requests"], strict=True)
        return Round(tuple(_to_times(request, times) for request, times in pairs))

    def peak_memory_bytes(self) -> int | None:
        """Of the peer's process since it started."""
        return self._peak_bytes

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("the driver ended", where=self.name, next_step="Its own words stand above.")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _to_times(request: PlannedRequest, times: dict[str, Any]) -> RequestTimes:
    arrivals_s = tuple(times["arrivals_s"])
    return RequestTimes(times["sent_s"], arrivals_s, arrivals_s[-1], len(request.prompt_ids), len(arrivals_s))
