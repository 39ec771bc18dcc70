"""Files, holders and the configuration of files in the output of commands."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leasehold.cli.argument_types import shown_term
from leasehold.cli.output import facts, number, shown_bytes, size, table
from leasehold.cli.settings.error_texts import escaped

if TYPE_CHECKING:
    from leasehold.files.holder import HolderInfo, OpenFileInfo
    from leasehold.files.namespace import FileInfo
    from leasehold.files.state import FilesConfig, StoreEntry


def shown_path(path: str) -> str:
    """Format a path or the id of a holder for people, in one line."""
    return shown_bytes(path.encode())


def listed_name(info: "FileInfo") -> str:
    """Return the name of a file; that of a directory ends with a slash."""
    name = shown_path(info.path.rpartition("/")[2])
    return f"{name}/" if info.is_directory else name


def file_row(info: "FileInfo") -> tuple[str, ...]:
    """Return a file or directory as the cells of a table."""
    modified = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(info.modified_ms / 1000))
    if info.is_directory:
        return ("directory", "", modified, "", listed_name(info))
    state = info.state.name.lower()
    return (state, size(info.size_bytes), modified, shown_path(info.holder), listed_name(info))


def file_json(info: "FileInfo") -> dict[str, Any]:
    """Return a file or directory as values of JSON."""
    return {
        "path": info.path,
        "id": info.id,
        "is_directory": info.is_directory,
        "size_bytes": info.size_bytes,
        "state": info.state.name.lower(),
        "holder": info.holder or None,
        "created_ms": info.created_ms,
        "modified_ms": info.modified_ms,
    }


def _renewed(elapsed_s: float | None) -> str:
    if elapsed_s is None:
        return "lease has ended"
    return f"{shown_term(round(elapsed_s))} ago" if elapsed_s >= 1 else "now"


def _elapsed(elapsed_s: float | None) -> float | None:
    return None if elapsed_s is None else number(round(elapsed_s, 3))


def holder_row(info: "HolderInfo") -> tuple[str, ...]:
    """Return a holder as the cells of a table."""
    return (shown_path(info.holder), str(info.files), _renewed(info.elapsed_s))


def holder_json(info: "HolderInfo") -> dict[str, Any]:
    """Return a holder as values of JSON."""
    elapsed_s = _elapsed(info.elapsed_s)
    return {"holder": info.holder, "files": info.files, "elapsed_s": elapsed_s}


def open_row(info: "OpenFileInfo") -> tuple[str, ...]:
    """Return an open file as the cells of a table."""
    return (shown_path(info.path), _renewed(info.elapsed_s), shown_path(info.holder))


def open_json(info: "OpenFileInfo") -> dict[str, Any]:
    """Return an open file as values of JSON."""
    return {
        "path": info.path,
        "id": info.id,
        "holder": info.holder,
        "elapsed_s": _elapsed(info.elapsed_s),
    }


def config_lines(config: "FilesConfig", failures: Mapping[str, str]) -> list[str]:
    """Format the configuration of files; `failures` has the reasons, by URL of a store."""
    needed = str(config.min_replicas) if config.min_replicas else f"majority ({config.needed})"
    lines = facts(
        [
            ("replicas", config.replicas),
            ("min replicas", needed),
            ("soft limit", shown_term(config.soft_limit_s)),
            ("hard limit", shown_term(config.hard_limit_s)),
            ("keep", shown_term(config.keep_s)),
            ("block size", size(config.block_bytes)),
        ]
    )
    rows = [
        (store.id, shown_path(store.url), _store_state(store, failures)) for store in config.stores
    ]
    return [*lines, *table(("STORE", "URL", "STATE"), rows)]


def _store_state(store: "StoreEntry", failures: Mapping[str, str]) -> str:
    why = failures.get(store.url, "")
    state = f"cannot be used from here: {escaped(why)}" if why else "usable"
    if store.is_leaving:
        return f"being removed; {state}" if why else "being removed"
    return state


def config_json(config: "FilesConfig", failures: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of files as values of JSON."""
    return {
        "stores": [
            {
                "id": store.id,
                "url": store.url,
                "is_leaving": store.is_leaving,
                "error": failures.get(store.url),
            }
            for store in config.stores
        ],
        "replicas": config.replicas,
        "min_replicas": config.min_replicas,
        "needed_replicas": config.needed,
        "soft_limit_s": number(config.soft_limit_s),
        "hard_limit_s": number(config.hard_limit_s),
        "keep_s": number(config.keep_s),
        "block_bytes": config.block_bytes,
    }
