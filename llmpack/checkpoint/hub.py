"""Fetches a model from the Hugging Face hub: one commit, only the files that are needed, never a pickle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

from llmpack.checkpoint.checkpoint import Checkpoint
from llmpack.checkpoint.directory import SIDECAR_FILES, TEMPLATES_FOLDER, Origin, read_directory
from llmpack.checkpoint.safetensors_weights import INDEX_FILE, SINGLE_FILE, no_safetensors, read_weight_map
from llmpack.checkpoint.source import spelling_hint
from llmpack.errors import CheckpointAccessDenied, CheckpointError, CheckpointNotFound

_COMMIT = re.compile(r"[0-9a-f]{40}")
_DEFAULT_REVISION = "main"
_LISTING_TIMEOUT_S = 30.0
# The HTTP client's own base error (whichever client the hub library uses) and OSError: no answer at all.
_NO_ANSWER: tuple[type[BaseException], ...] = HfHubHTTPError.__bases__
_LOG_IN = "run `hf auth login` or set HF_TOKEN"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Listing:
    """What the hub says about one commit."""

    commit: str
    file_names: list[str]


def fetch_from_hub(
    model: str, *, revision: str | None = None, cache_dir: Path | None = None, progress: Progress | None = None
) -> Checkpoint:
    """The checkpoint `model` of the hub, from the cache where possible.

    The revision is resolved to a commit first and every file is taken from that commit, so a push during the
    download cannot mix two versions. Without a network (or under HF_HUB_OFFLINE) the cached snapshot is used. The
    token comes from HF_TOKEN or `hf auth login` and is neither printed nor recorded.

    Args:
        model: Repository id.
        revision: Branch, tag or commit; None means `main`.
        cache_dir: Hub cache; None means Hugging Face's own.
        progress: Told in words what is being fetched.

    Raises:
        CheckpointNotFound: No such repository, revision or file.
        CheckpointAccessDenied: Gated or disabled, or the token is not accepted.
        UnsafeCheckpoint: The weights are pickled.
        CorruptCheckpoint: The files contradict each other.
        CheckpointError: The hub gives no answer and the cache has no copy.
    """
    tell = progress or (lambda message: None)
    cache = _Cache(model, revision or _DEFAULT_REVISION, Path(cache_dir or constants.HF_HUB_CACHE).expanduser())
    with _explained(model, revision):
        listing = _list_commit(cache)
        if listing is None:
            directory = cache.snapshot()
            tell(f"the hub gives no answer; using the cached commit {directory.name}")
        else:
            directory = _download(cache, listing, tell)
    return read_directory(directory, Origin("hub", model, directory.name))


@dataclass(frozen=True)
class _Cache:
    """One repository's place in the hub cache.

    Source: huggingface_hub 2.4, "Understand caching": refs/<revision> holds a commit, snapshots/<commit> its files.
    """

    model: str
    revision: str
    root: Path

    @property
    def folder(self) -> Path:
        return self.root / f"models--{self.model.replace('/', '--')}"

    def remember(self, commit: str) -> None:
        """Note which commit the revision stood for, so that it can be found again without a network."""
        if self.revision != commit:
            ref = self.folder / "refs" / self.revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(commit)

    def snapshot(self) -> Path:
        """The cached files of the revision."""
        ref = self.folder / "refs" / self.revision
        commit = ref.read_text().strip() if ref.is_file() else self.revision
        directory = self.folder / "snapshots" / commit
        if _COMMIT.fullmatch(commit) and directory.is_dir():
            return directory
        raise CheckpointError(
            "the hub gives no answer and the model is not in the local cache",
            given=f"{self.model} at {self.revision}",
            where=str(self.folder),
            next_step="Check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or pass a local directory"
            + (f". {hint}" if (hint := spelling_hint(Path(self.model))) else "."),
        )


def _list_commit(cache: _Cache) -> _Listing | None:
    """The commit and its files, or None when the hub gives no answer (offline, no network, down)."""
    try:
        info = HfApi().model_info(cache.model, revision=cache.revision, timeout=_LISTING_TIMEOUT_S)
    except HfHubHTTPError as error:
        if error.response.status_code < 500:
            raise
        return None
    except _NO_ANSWER:
        return None
    if info.sha is None:
        raise CheckpointError("the hub names no commit", given=cache.model, next_step="Pass --revision with a commit.")
    return _Listing(info.sha, [sibling.rfilename for sibling in info.siblings or []])


def _download(cache: _Cache, listing: _Listing, tell: Progress) -> Path:
    names = listing.file_names
    has_index = INDEX_FILE in names and SINGLE_FILE not in names
    if not has_index and SINGLE_FILE not in names:
        raise no_safetensors(names, cache.model)
    sidecars = [name for name in names if name in SIDECAR_FILES or _is_template(name)]
    tell(f"fetching {cache.model} at {listing.commit[:12]}: configuration and tokenizer")
    directory = _fetch(cache, listing.commit, [*sidecars, INDEX_FILE] if has_index else sidecars)
    # Weights come last: a snapshot that has them has everything.
    shards = sorted(set(read_weight_map(directory / INDEX_FILE).values())) if has_index else [SINGLE_FILE]
    for number, shard in enumerate(shards, 1):
        tell(f"fetching {shard} ({number} of {len(shards)})")
        _fetch(cache, listing.commit, [shard])
    cache.remember(listing.commit)
    return directory


def _is_template(name: str) -> bool:
    return name.startswith(f"{TEMPLATES_FOLDER}/") and name.endswith(".jinja")


def _fetch(cache: _Cache, commit: str, file_names: list[str]) -> Path:
    patterns = [re.sub(r"([*?[])", r"[\1]", name) for name in file_names]  # names are literal, patterns are globs
    folder = snapshot_download(
        cache.model, revision=commit, cache_dir=cache.root, allow_patterns=patterns, tqdm_class=_Silent
    )
    return Path(folder)


class _Silent(tqdm):
    """A progress bar that draws nothing: below the CLI nobody writes to the terminal."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]  # the library has no types here


@contextmanager
def _explained(model: str, revision: str | None) -> Iterator[None]:
    """Turn the hub library's errors into ours, with the way out. Their own text is left out: it can be long."""
    try:
        yield
    except GatedRepoError as error:
        raise CheckpointAccessDenied(
            "the repository is gated",
            given=model,
            next_step=f"Accept the licence at {constants.ENDPOINT}/{model}, then {_LOG_IN}.",
        ) from error
    except RepositoryNotFoundError as error:
        hint = spelling_hint(Path(model))
        raise CheckpointNotFound(
            "there is no such repository on the hub, and no such local path",
            given=model,
            next_step=f"If it is private, {_LOG_IN}." + (f" {hint}" if hint else ""),
        ) from error
    except RevisionNotFoundError as error:
        raise CheckpointNotFound(
            "the repository has no such revision", where=model, given=revision, allowed="a branch, tag or commit"
        ) from error
    except DisabledRepoError as error:
        raise CheckpointAccessDenied("the hub has disabled the repository", given=model) from error
    except HfHubHTTPError as error:
        raise _http_error(model, error.response.status_code) from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            "the download was interrupted: the hub stopped answering",
            given=model,
            next_step="Run the same command again; finished files are kept.",
        ) from error
    except HFValidationError as error:
        raise CheckpointNotFound(
            "not a repository id, and no such local path", given=model, allowed="owner/name", next_step=str(error)
        ) from error
    except _NO_ANSWER as error:
        raise CheckpointError(
            f"the files cannot be fetched ({type(error).__name__})",
            given=model,
            next_step="Run the same command again.",
        ) from error


def _http_error(model: str, status: int) -> CheckpointError:
    if status in (401, 403):
        return CheckpointAccessDenied(
            f"the hub refuses access (HTTP {status})",
            given=model,
            next_step=f"The token may be wrong or may lack the right to read this repository: {_LOG_IN}.",
        )
    return CheckpointError(f"the hub answered with HTTP {status}", given=model, next_step="Try again in a minute.")
