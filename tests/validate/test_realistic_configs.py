"""False alarms are the worst defect of a validator: what is correct is clean, and what is no config is no config."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmpack.validate.readers.read import read_paths
from llmpack.validate.run import validate_paths
from tests.validate.realistic_configs import FOREIGN, REALISTIC
from tests.validate.tutorials import write_files


@pytest.mark.parametrize("name", REALISTIC)
def test_nothing_is_found_in_what_is_correct(tmp_path: Path, name: str) -> None:
    report = validate_paths([write_files(tmp_path, REALISTIC[name])])
    assert (report.findings, report.failures) == ((), ())
    assert report.num_configs


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_tools_are_no_configs(tmp_path: Path, name: str) -> None:
    result = read_paths([write_files(tmp_path, {name: FOREIGN[name]})])
    assert result.configs == ()
    assert [failure.message for failure in result.failures] == ["no serving config lies below this directory"]
