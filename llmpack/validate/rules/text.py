"""LP122 and LP141: the text itself, and secrets in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from llmpack.validate.model import DefectKind, Secret, ServingConfig, Setting, TextDefect
from llmpack.validate.rules.fixes import edit_span
from llmpack.validate.rules.rule import Context, Discrepancy, Outcome
from llmpack.validate.rules.values import as_text, is_placeholder

HIDDEN = "(hidden)"
_TEMPLATE = re.compile(r"\$\{[^}]*\}|\{\{[^}]*\}\}")
_REQUIRED = frozenset({"model", "compiled_model_dir", "tokenizer", "device"})
SECRET_NAMES = frozenset({"api_key", "hf_token", "token", "password", "ssl_keyfile_password"})
_SECRET_VARIABLES = re.compile(r"(?:^|_)(?:TOKEN|API_KEY|APIKEY|SECRET|PASSWORD|ACCESS_KEY)$")
# Source: the prefixes that Hugging Face, OpenAI, GitHub, AWS and NVIDIA give their tokens.
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|nvapi-\S{20,})"
)
_MESSAGES: dict[DefectKind, str] = {
    "non-ascii": "the server's parser stops at a character outside ASCII",
    "unrendered": "a template variable was left as it is",
    "syntax": "the server's parser refuses this",
}


def check_text(config: ServingConfig, _context: Context) -> Iterator[Outcome]:
    """LP122: nothing unrendered, empty or outside ASCII where the server stumbles over it."""
    for defect in config.defects:
        yield _describe_defect(defect)
    seen = {(defect.location.line, defect.location.column) for defect in config.defects}
    for setting in config.settings:
        text = setting.value
        place = (setting.location.line, setting.location.column)
        if isinstance(text, str) and config.kind in {"model.json", "kwargs"} and _TEMPLATE.search(text):
            if place not in seen or place == (None, None):
                yield Discrepancy(setting.location, _MESSAGES["unrendered"], given=text, relation="rendered")
        elif text == "" and setting.name in _REQUIRED and setting.is_known:
            yield Discrepancy(setting.location, f"{setting.spelling} is empty", given="", relation="not empty")


def _describe_defect(defect: TextDefect) -> Discrepancy:
    code_points = " ".join(f"U+{ord(character):04X}" for character in defect.text[:4])
    given = code_points if defect.kind == "non-ascii" else defect.text
    fix = None
    if defect.replacement is not None:
        fix = edit_span(defect.location, defect.span, defect.replacement, f"replace {given} by a plain space")
    return Discrepancy(defect.location, f"{_MESSAGES[defect.kind]}: {given}", given=given, relation="absent", fix=fix)


def check_secrets(config: ServingConfig, _context: Context) -> Iterator[Outcome]:
    """LP141: no credential stands in an argument, an environment or a source file."""
    secrets = [*config.secrets]
    if config.triton is not None and config.triton.model_py is not None and config.kind == "config.pbtxt":
        secrets += config.triton.model_py.secrets
    for secret in secrets:
        yield _describe_secret(secret)
    if config.kind == "env-file":
        yield from _check_env_file(config)
        return
    for setting in config.settings:
        if setting.name in SECRET_NAMES or _holds_token(setting):
            yield from _check_literal(setting)
    for variable in config.environment:
        if variable.location.path != config.path:
            continue  # an env file, judged as such
        if _SECRET_VARIABLES.search(variable.spelling.upper()) or _holds_token(variable):
            yield from _check_literal(variable)


def _describe_secret(secret: Secret) -> Discrepancy:
    state = "waits for a credential to be written into the source" if secret.is_empty else "holds a credential"
    return Discrepancy(secret.location, f"{secret.what} {state}", given=HIDDEN, relation="absent")


def _check_env_file(config: ServingConfig) -> Iterator[Outcome]:
    """An env file is where secrets are put on purpose; it only must not be shared."""
    for setting in config.settings:
        if _SECRET_VARIABLES.search(setting.spelling.upper()) and as_text(setting):
            message = f"{setting.spelling} holds a credential; keep this file out of version control and images"
            yield Discrepancy(setting.location, message, given=HIDDEN, relation="not shared", severity="note")


def _check_literal(setting: Setting) -> Iterator[Outcome]:
    text = as_text(setting)
    if text is None or not setting.is_known or is_placeholder(text) or text.startswith("$"):
        return
    message = f"{setting.spelling} holds a credential that everyone who can read this file or list processes sees"
    yield Discrepancy(setting.location, message, given=HIDDEN, relation="absent")


def _holds_token(setting: Setting) -> bool:
    return isinstance(setting.value, str) and _TOKEN.search(setting.value) is not None


def redact(text: str) -> str:
    """`text` with everything that looks like a token hidden: a report is shown, stored and sent around."""
    return _TOKEN.sub(HIDDEN, text)
