"""The folder of compiled kernels, and which policies have all of theirs in it. Nothing here imports numba."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

EVERYTHING = "everything"
"""Name of a marker: kernels of every policy are compiled."""

_SHOAL = Path(__file__).parents[1]
_PACKAGES = ("kernels", "protection", "scales", "streams", "tables")
"""Packages whose modules hold kernels."""

_DRAFT_AGE_S = 600.0
"""Age (s) of a file from which on no process still writes it."""

_UNUSED_AGE_S = 30 * 86_400.0
"""Time (s) after which a folder of another version is removed if no process has used it."""

_PROCESSORS = Path("/proc/cpuinfo")

_NAME, _SUFFIXES = re.compile(r"shoal-[0-9a-f]{16}"), {".nbi", ".nbc", ".ready", ".lock"}
"""Name of a folder of kernels, and how the names of its files end."""


def has_writable_cache() -> bool:
    """Return whether compiled kernels are kept for later processes."""
    return kernel_folders().own is not None


def has_cache() -> bool:
    """Return whether compiled kernels are read from a folder."""
    return any(folder is not None for folder in kernel_folders())


_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})

_faults: list[str] = []


@contextmanager
def noting_faults() -> Iterator[None]:
    """Ignore errors of the system around an access to the folder; `cache_fault` tells those that keep kernels out."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_WRITTEN:
            _faults.append(os.strerror(error.errno))


def cache_fault() -> str:
    """Return why compiled kernels could not be written, with what to do; an empty text if they were."""
    if not _faults:
        return ""
    folder = kernel_folders().own
    return f"{_faults[0]} in {folder}: free space there, or set NUMBA_CACHE_DIR to another folder"


def mark_compiled(name: str) -> None:
    """Note that all kernels of a policy with this fingerprint, or `EVERYTHING`, are in the folder."""
    own = kernel_folders().own
    if own is not None:
        with suppress(OSError):
            (own / _marker(name)).touch()


@contextmanager
def compiling_alone(name: str) -> Iterator[None]:
    """Wait until no other process compiles the kernels of this policy; the system frees the lock of a killed process.

    Without it, each worker of a machine would compile the same kernels at the same time.
    """
    own = kernel_folders().own
    with ExitStack() as stack:
        if own is not None:
            with suppress(OSError):  # some network file systems have no locks: then both compile
                flock(stack.enter_context((own / _marker(name)).with_suffix(".lock").open("ab")), LOCK_EX)
        yield


def was_compiled(name: str) -> bool:
    """Return whether all kernels of a policy with this fingerprint are in a folder, for this processor."""
    markers = _marker(name), _marker(EVERYTHING)
    return any((folder / marker).exists() for folder in kernel_folders() if folder is not None for marker in markers)


def _marker(name: str) -> str:
    return f"{name}-{_platform()}.ready"


@cache
def _platform() -> str:
    """Return a hash of what compiled kernels depend on besides their text: versions and processor."""
    processor = os.environ.get("NUMBA_CPU_NAME", "")
    with suppress(OSError):
        lines = _PROCESSORS.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
        processor = processor or "\n".join(
            line for line in lines if line.startswith(("model name", "flags", "Features", "CPU"))
        )
    parts = [sys.version, version("numba"), version("llvmlite"), platform.machine(), processor or platform.processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class Folders(NamedTuple):
    """Folders of compiled kernels: the first writable one, and the first that holds kernels and is not writable.

    Without one of one's own, kernels that the other lacks are compiled in every process. A folder that is not writable
    is for instance part of an image with a read-only root.
    """

    own: Path | None
    prepared: Path | None


@cache
def kernel_folders() -> Folders:
    """Find the folders of compiled kernels, and remove from one's own what no process needs.

    numba considers a compiled function up to date as long as the file of that function is unchanged, even if a kernel
    that it calls has changed. Therefore the name of the folder is a hash of the text of every module that may hold a
    kernel or a constant of one.
    """
    candidates = _candidates()
    own = next(filter(_is_writable, candidates), None)
    if own is not None:
        _remove_drafts(own)
        _remove_unused_versions(own)
    others = (folder for folder in candidates if folder != own and any(folder.rglob("*.nbi")))
    return Folders(own, next((folder for folder in others if not _is_writable(folder)), None))


def _candidates() -> list[Path]:
    sources = [_SHOAL / "arrays.py", *(path for name in _PACKAGES for path in sorted((_SHOAL / name).rglob("*.py")))]
    text = b"\0".join(path.read_bytes() for path in sources)
    name = f"shoal-{hashlib.sha256(text).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(chosen)] if chosen else [_SHOAL / "kernels" / "__pycache__", *_user_caches()]
    return list(filter(_is_trusted, (folder / name for folder in folders)))


def _remove_drafts(folder: Path) -> None:
    """Remove files that numba had begun to write when its process was ended; it gives them their name at the end."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as new:
        now_s = os.fstat(new.fileno()).st_mtime
        for draft in folder.rglob("*.tmp.*"):
            if now_s - draft.stat().st_mtime > _DRAFT_AGE_S:
                draft.unlink()


def _remove_unused_versions(folder: Path) -> None:
    """Remove folders of other versions that no process has used for 30 days; note the use of this one."""
    with suppress(OSError):
        os.utime(folder)
        now_s = folder.stat().st_mtime
        for other in folder.parent.glob("shoal-*"):
            if now_s - other.stat().st_mtime > _UNUSED_AGE_S and _has_only_kernels(other):
                shutil.rmtree(other, ignore_errors=True)


def _has_only_kernels(folder: Path) -> bool:
    """Whether a folder is one of kernels: the user may keep other folders beside it."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    are_kernels = all(path.suffix in _SUFFIXES or ".tmp." in path.name for path in files)
    return _NAME.fullmatch(folder.name) is not None and are_kernels


def _is_trusted(folder: Path) -> bool:
    """Whether nobody else can have put kernels into a folder: they are code, which is executed when it is loaded.

    A folder is trusted if its owner is this user, root or the owner of this package, and others cannot write to it.
    """
    try:
        found, package = folder.stat(), Path(__file__).stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    is_shared = found.st_mode & stat.S_IWOTH != 0 and found.st_mode & stat.S_ISVTX == 0
    return found.st_uid in {0, os.geteuid(), package.st_uid} and not is_shared


def _user_caches() -> list[Path]:
    """Return the user's cache folder; an empty list for a user without a home folder, as in some containers."""
    chosen, home = os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")
    return [Path(chosen) / "numba"] if chosen else [Path(home) / ".cache" / "numba"] if home else []


def _is_writable(folder: Path) -> bool:
    """Whether files can be written to a folder; creates the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
