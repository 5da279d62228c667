"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from llmpack.server.context import context_of, json_response
from llmpack.server.responses import Model, ModelList
from llmpack.server.served_model import ServedModel


async def list_models(request: Request) -> Response:
    """Every served name."""
    model = context_of(request).model
    data = [_describe(name, model) for name in model.names]
    return json_response(msgspec.json.encode(ModelList("list", data)))


async def retrieve_model(request: Request) -> Response:
    """One served name; ids may hold slashes."""
    model = context_of(request).model
    name = model.check_name(request.path_params["model"])
    return json_response(msgspec.json.encode(_describe(name, model)))


def _describe(name: str, model: ServedModel) -> Model:
    return Model(
        id=name,
        object="model",
        created=model.created,
        owned_by="llmpack",
        root=model.names[0],
        max_model_len=model.limits.max_seq_len,
    )
