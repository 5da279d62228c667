"""The streaming client of the guide to vllm-rbln: same calls and tensors; MODEL and URL are given."""

import asyncio
import sys

import numpy as np
import tritonclient.grpc.aio as grpcclient

URL, MODEL = sys.argv[1:]
PROMPT = "What is the first letter of English alphabets?"


def create_request(prompt, request_id):
    text = grpcclient.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([prompt.encode("utf-8")]))
    stream = grpcclient.InferInput("stream", [1], "BOOL")
    stream.set_data_from_numpy(np.array([True]))
    outputs = [grpcclient.InferRequestedOutput("text_output")]
    return {"model_name": MODEL, "inputs": [text, stream], "outputs": outputs, "request_id": request_id}


async def try_request():
    client = grpcclient.InferenceServerClient(url=URL, verbose=False)

    async def requests():
        yield create_request(PROMPT, "req-0")

    async for result, error in client.stream_infer(requests()):
        if error:
            sys.exit(f"Error occurred! {error}")
        for item in result.as_numpy("text_output"):
            print(item.decode("utf-8").removeprefix(PROMPT), end="", flush=True)


asyncio.run(try_request())
