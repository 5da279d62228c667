"""Stands in for Triton's vLLM backend: loads what that loads, refuses what that refuses, and then llmpack serves.

The environment variable VLLM_STAND_IN describes the engine that is played, JSON:
{"engine": "vllm" or "vllm-rbln", "release": version or null, "artifacts": {value of "model" in model.json: artifact}}
"""

import json
import locale
import os
from pathlib import Path

locale.setlocale(locale.LC_ALL, "C.UTF-8")  # Triton's interpreter reads files as ASCII otherwise

import triton_python_backend_utils as pb_utils  # noqa: E402

from llmpack.artifact.reader import open_artifact  # noqa: E402
from llmpack.bundle.triton_runtime.loading import LoadedModel  # noqa: E402
from llmpack.bundle.triton_runtime.settings import ModelSettings  # noqa: E402
from llmpack.bundle.triton_runtime.text_generation import TextGeneration  # noqa: E402
from llmpack.runtime.engine import EngineOptions  # noqa: E402
from llmpack.runtime.load import load_engine  # noqa: E402
from llmpack.runtime.resolve import ModelLimits  # noqa: E402
from llmpack.validate.artifacts.detect import read_facts  # noqa: E402
from llmpack.validate.rules.triton_contract import VLLM_BACKEND  # noqa: E402
from llmpack.validate.vocabulary.engine_vocabulary import find_vocabulary  # noqa: E402

PLAYED = json.loads(os.environ["VLLM_STAND_IN"])


def read_engine_arguments(path):
    """The arguments in model.json, all of which the played release must know."""
    with open(path, encoding="utf-8") as stream:  # noqa: PTH123
        arguments = json.load(stream)
    vocabulary, release = find_vocabulary(PLAYED["engine"], PLAYED["release"])
    for name in arguments:
        if not vocabulary.knows(name, "arguments", release):
            raise TypeError(f"AsyncEngineArgs.__init__() got an unexpected keyword argument '{name}'")
    return arguments


def check_compiled(arguments):
    """What vllm-rbln demands: an artifact with exactly these numbers."""
    directory = Path(arguments.get("compiled_model_dir", arguments["model"]))
    facts = read_facts(directory)
    for name, compiled in (("max_num_seqs", facts.batch_size), ("max_model_len", facts.max_seq_len)):
        if arguments[name] != compiled:
            raise ValueError(f"{name} is {arguments[name]}, but {compiled} was compiled")


def load_model(arguments, args):
    """The artifact of the model that the arguments name."""
    if arguments["model"] not in PLAYED["artifacts"]:
        raise OSError(f"{arguments['model']} is neither a directory nor a model of the hub")
    artifact = open_artifact(Path(PLAYED["artifacts"][arguments["model"]]), "full")
    manifest = artifact.manifest
    engine = load_engine(artifact, EngineOptions(max_running=min(arguments["max_num_seqs"], manifest.batch_size)))
    limits = ModelLimits(
        vocab_size=manifest.vocab_size,
        max_seq_len=min(arguments["max_model_len"], manifest.max_seq_len),
        eos_token_ids=frozenset(manifest.special_tokens.eos_token_ids),
    )
    return LoadedModel(engine, limits, ModelSettings(args["model_name"], args["model_version"], artifact.path))


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        declared = config.as_dict()
        for side, add in (("input", config.add_input), ("output", config.add_output)):
            known = {tensor["name"] for tensor in declared[side]}
            for tensor in VLLM_BACKEND:
                if tensor.side == side and tensor.name not in known:
                    entry = {"name": tensor.name, "data_type": tensor.data_type, "dims": [1 if side == "input" else -1]}
                    add(entry | ({"optional": True} if side == "input" and tensor.name != "text_input" else {}))
        config.set_max_batch_size(0)
        config.set_model_transaction_policy({"decoupled": True})
        return config

    def initialize(self, args):
        arguments = read_engine_arguments(Path(pb_utils.get_model_dir(), "model.json"))
        if PLAYED["engine"] == "vllm-rbln":
            check_compiled(arguments)
        self._model = TextGeneration(pb_utils, lambda: load_model(arguments, args))

    def execute(self, requests):
        self._model.execute(requests)

    def finalize(self):
        self._model.close()
