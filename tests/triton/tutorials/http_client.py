"""The HTTP client of the tutorial on Llama 2: three rows in one asynchronous request; MODEL and URL are given."""

import sys

import numpy as np
import tritonclient.http as httpclient
from tritonclient.utils import np_to_triton_dtype

URL, MODEL = sys.argv[1:]

with httpclient.InferenceServerClient(url=URL, verbose=False, concurrency=32) as client:
    rows = np.array([["Where is Uruguay?"], ["Who is George Washington?"], ["Who is Lionel Messi?"]], dtype="object")
    tensor = httpclient.InferInput("prompt", rows.shape, np_to_triton_dtype(rows.dtype)).set_data_from_numpy(rows)
    outputs = [httpclient.InferRequestedOutput("generated_text")]
    responses = [client.async_infer(MODEL, model_version="1", inputs=[tensor], outputs=outputs)]

for response in responses:
    print(response.get_result().as_numpy("generated_text"))
