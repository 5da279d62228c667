from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmpack.bundle.options import EmitOptions, resolve_plan
from llmpack.bundle.triton_config import render_config
from llmpack.bundle.triton_models import build_streaming_config, build_vllm_config
from llmpack.bundle.triton_runtime.settings import ModelSettings
from llmpack.errors import UsageError
from llmpack.validate.readers.source_text import read_source
from llmpack.validate.readers.triton_config import read_triton_config

PLAN = resolve_plan(EmitOptions(model_name="m"), Path("/artifact"), "source")


def read_back(text: str, folder: Path):  # type: ignore[no-untyped-def]
    path = folder / "config.pbtxt"
    path.write_text(text, encoding="utf-8")
    found = read_triton_config(read_source(path), is_repository=False)
    assert found.defects == ()
    return found.model


def test_everything_is_read_back(tmp_path: Path) -> None:
    config = build_streaming_config(PLAN)
    model = read_back(render_config(config), tmp_path)
    assert (model.name, model.backend, model.max_batch_size, model.decoupled) == ("m", "python", 0, True)
    assert [(t.name, t.data_type, t.dims, t.optional) for t in model.inputs] == [
        (t.name, t.data_type, t.dims, t.is_optional) for t in config.inputs
    ]
    assert [(t.name, t.data_type, t.dims) for t in model.outputs] == [
        (t.name, t.data_type, t.dims) for t in config.outputs
    ]
    assert [(group.kind, group.count) for group in model.instance_groups] == [("KIND_CPU", 1)]
    assert [(setting.name, setting.value) for setting in model.parameters] == list(config.parameters)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_any_value_survives_as_ascii(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    config = replace(build_streaming_config(PLAN), parameters=(("artifact", value),))
    text = render_config(config)
    assert text.isascii()
    model = read_back(text, tmp_path_factory.mktemp("config"))
    assert model.parameters[0].value == value


@pytest.mark.parametrize(
    ("release", "has_echo", "has_extras", "stream_text"),
    [("24.01", False, False, "cumulative"), ("24.03", True, False, "delta"), ("25.01", True, True, "delta")],
)
def test_the_release_decides_the_contract(release: str, has_echo: bool, has_extras: bool, stream_text: str) -> None:
    config = build_streaming_config(replace(PLAN, triton_release=release))
    names = {tensor.name for tensor in config.inputs}
    assert ("exclude_input_in_output" in names) == has_echo
    assert ("return_logprobs" in names) == has_extras
    assert dict(config.parameters)["stream_text"] == stream_text


def test_only_the_engine_of_the_container_sees_images() -> None:
    assert "image" in {tensor.name for tensor in build_vllm_config(PLAN).inputs}
    assert "image" not in {tensor.name for tensor in build_streaming_config(PLAN).inputs}


def arguments(**parameters: str) -> dict[str, str]:
    import json

    entries = {key: {"string_value": value} for key, value in parameters.items()}
    return {"model_name": "m", "model_version": "1", "model_config": json.dumps({"parameters": entries})}


def test_settings_are_those_of_the_config() -> None:
    parameters = dict(build_streaming_config(PLAN).parameters) | {"artifact": "artifact", "max_waiting": "7"}
    settings = ModelSettings.read(arguments(**parameters), Path("/repository/m/1"))
    assert settings.artifact == Path("/repository/m/1/artifact")
    assert (settings.max_waiting, settings.max_tokens, settings.report_metrics) == (7, 16, True)
    absolute = ModelSettings.read(arguments(artifact="/elsewhere"), Path("/repository/m/1"))
    assert absolute.artifact == Path("/elsewhere")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, 'the parameter "artifact" is missing'),
        ({"artifact": "a", "max_wating": "1"}, "unknown parameter in config.pbtxt; given: max_wating"),
        ({"artifact": "a", "max_tokens": "-1"}, 'the parameter "max_tokens" cannot be used'),
        ({"artifact": "a", "stream_text": "both"}, "allowed: delta or cumulative"),
        ({"artifact": "a", "REPORT_CUSTOM_METRICS": "yes"}, "allowed: true or false"),
    ],
)
def test_bad_settings_are_named(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ModelSettings.read(arguments(**parameters), Path())
