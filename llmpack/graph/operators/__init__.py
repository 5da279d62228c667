"""The operators that matter, named once for the decoder and lowered more than once: to ONNX and to plain torch."""
