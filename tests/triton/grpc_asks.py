"""A gRPC client process in Triton's environment, which has tritonclient: requests in on stdin, answers out on stdout.

Usage: python grpc_asks.py URL < asks.json      asks: a list of {"model", "inputs", "cancel_after"?}; all at once

Inputs are name -> value: a string, a boolean, or a list of strings (one row each, for models that batch). An answer is
{"responses": [name -> value ...], "error": text or null, "has_final": whether the last response said so}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpcclient
from tritonclient.utils import InferenceServerException

STREAM_TIMEOUT_S = 120


def build_tensor(name: str, value: Any) -> Any:
    if isinstance(value, list):
        array = np.array([[text.encode()] for text in value], dtype=np.object_)
    else:
        array = np.array([value if isinstance(value, bool) else value.encode()])
    tensor = grpcclient.InferInput(name, list(array.shape), "BOOL" if isinstance(value, bool) else "BYTES")
    tensor.set_data_from_numpy(array)
    return tensor


def read_outputs(result: Any) -> dict[str, Any]:
    outputs = {}
    for output in result.get_response().outputs:
        array = result.as_numpy(output.name)
        is_text = array.dtype == np.object_
        outputs[output.name] = [item.decode() for item in array.reshape(-1)] if is_text else array.tolist()
    return outputs


async def ask_stream(client: Any, ask: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"responses": [], "error": None, "has_final": False}

    async def requests() -> Any:
        inputs = [build_tensor(name, value) for name, value in ask["inputs"].items()]
        yield {"model_name": ask["model"], "inputs": inputs, "request_id": "test"}

    # Read to its end: a client that leaves right after the last response was seen to keep release 24.10 from unloading
    # the model, about once in ten times.
    stream = client.stream_infer(requests(), stream_timeout=STREAM_TIMEOUT_S)
    async for result, error in stream:
        if error is not None:
            answer["error"] = str(error)
            break
        answer["responses"].append(read_outputs(result))
        answer["has_final"] = result.get_response().parameters["triton_final_response"].bool_param
        if len(answer["responses"]) == ask.get("cancel_after"):
            stream.cancel()
            break
    return answer


async def ask_once(client: Any, ask: dict[str, Any]) -> dict[str, Any]:
    inputs = [build_tensor(name, value) for name, value in ask["inputs"].items()]
    try:
        result = await client.infer(ask["model"], inputs)
    except InferenceServerException as error:
        return {"responses": [], "error": str(error), "has_final": True}
    return {"responses": [read_outputs(result)], "error": None, "has_final": True}


async def main(url: str) -> None:
    asks = json.load(sys.stdin)
    async with grpcclient.InferenceServerClient(url=url) as client:
        calls = (ask_once(client, ask) if ask.get("unary") else ask_stream(client, ask) for ask in asks)
        json.dump(await asyncio.gather(*calls), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
