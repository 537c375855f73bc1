"""The directory that a conversion writes: new or empty before, and without a checkpoint after a fault."""

from __future__ import annotations

from pathlib import Path

from hyper_parallel.errors import InvalidArgumentError

__all__ = ["claim", "release"]

# Every save of ours leaves it, a failed one too: to remove a lock would let two savers hold one.
_LOCK_NAME = ".save.lock"


def claim(folder: Path) -> bool:
    """Makes the directory if it is not there.

    Args:
        folder: Its path.

    Returns:
        Whether it was made.

    Raises:
        InvalidArgumentError: Something but a lock is there already, or it cannot be made.

    Example:
        >>> claim(Path("new")), claim(Path("new"))
        (True, False)
    """
    try:
        folder.mkdir()
    except FileExistsError:
        if folder.is_dir() and all(file.name == _LOCK_NAME for file in folder.iterdir()):
            return False
        raise InvalidArgumentError(
            f"{folder} must be a new or an empty directory: a conversion replaces nothing"
        ) from None
    except OSError as error:
        raise InvalidArgumentError(f"{folder} cannot be made: {error.strerror}") from error
    return True


def release(folder: Path, *, made: bool) -> None:
    """Removes a directory that `claim` made, if nothing is in it.

    Args:
        folder: Its path.
        made: What `claim` returned.
    """
    if made and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
