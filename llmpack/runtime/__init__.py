"""Slots, scheduler, sampler, detokenizer and engine. Imports neither torch nor the compiler."""

from __future__ import annotations

import os

# ONNX Runtime's Linux wheels report to Microsoft and leave files in the temporary and home directories, unless this is
# set before the import (found in 1.32). Set it to 0 to let them.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
