"""The decoder and its lowering to ONNX programs."""
