"""Peak memory of a process, as Linux counts it."""

from __future__ import annotations

import os
import re
from pathlib import Path


def reset_peak() -> bool:
    """Makes this process's peak start again from what it holds now; false where the system cannot.

    Source: proc(5), clear_refs, value 5.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def read_peak_bytes(process_id: int | None = None) -> int | None:
    """The largest resident size of a process, this one when none is given; None where the system does not say.

    Source: proc(5), status, VmHWM.
    """
    try:
        status = Path(f"/proc/{os.getpid() if process_id is None else process_id}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, flags=re.MULTILINE)
    return None if found is None else int(found[1]) * 1024
