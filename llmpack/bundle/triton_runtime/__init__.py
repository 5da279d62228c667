"""What an emitted `model.py` runs inside Triton's Python backend. Nothing here imports Triton.

`model.py` hands over its `pb_utils` module; tests hand over another object with the same names.
"""
