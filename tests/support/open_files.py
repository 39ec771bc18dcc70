"""The files that this process has open."""

from pathlib import Path


def open_files_in(directory: Path) -> list[str]:
    """Return those in a directory, also if they are deleted: files elsewhere are of other tests."""
    names = (_target(descriptor) for descriptor in Path("/proc/self/fd").iterdir())
    return [name for name in names if name.startswith(f"{directory.resolve()}/")]


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # the descriptor of the listing, or closed meanwhile
        return ""
