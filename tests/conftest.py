"""Settings of the whole suite."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from hypothesis import settings

# Timing on a shared machine is no property of the code; a failure must come back on the next run.
settings.register_profile("llmpack", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("llmpack")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("torch") and find_spec("transformers"):
        return
    for item in items:
        if item.get_closest_marker("compile"):
            item.add_marker(pytest.mark.skip(reason="needs the compile extra"))
