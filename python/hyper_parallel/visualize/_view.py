"""OwnershipView: what ``visualize`` gives back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hyper_parallel.errors import InvalidArgumentError
from hyper_parallel.visualize import _figure
from hyper_parallel.visualize._ownership import Ownership
from hyper_parallel.visualize._picture import Picture, picture_of
from hyper_parallel.visualize._text import text_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OwnershipView"]

_NARROWEST = 40


class OwnershipView:
    """Who owns what. Its text is what ``print`` and the Python prompt show; notebooks show the picture.

    Attributes:
        ownership: The shares, as data.
        picture: The tiles that are drawn, as data.
    """

    def __init__(self, ownership: Ownership) -> None:
        self.ownership = ownership
        self.picture: Picture = picture_of(ownership)

    def text(self, width: int | None = None) -> str:
        """The text, in lines of at most ``width`` characters.

        Args:
            width: At least 40; the terminal's if None, 80 where there is none.

        Raises:
            InvalidArgumentError: ``width`` is below 40.
        """
        if width is None:
            width = max(_NARROWEST, shutil.get_terminal_size().columns)
        if width < _NARROWEST:
            raise InvalidArgumentError(f"width is {width} but must be at least {_NARROWEST}")
        return text_of(self.ownership, self.picture, width)

    def figure(self) -> Figure:
        """The picture as a matplotlib figure, which no window shows.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return _figure.figure_of(self.ownership, self.picture)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture (.svg, .png, .pdf) or the text (.txt).

        Equal tensors give equal SVG files.

        Args:
            path: Where; its suffix says what.

        Raises:
            InvalidArgumentError: Another suffix.
            ImportError: The file is a picture and matplotlib is not installed.
        """
        path = Path(path)
        if path.suffix == ".txt":
            path.write_text(self.text(width=80) + "\n", encoding="utf-8")
        elif path.suffix in _figure.SUFFIXES:
            path.write_bytes(_figure.rendered(self.ownership, self.picture, path.suffix.removeprefix(".")))
        else:
            raise InvalidArgumentError(
                f"file is '{path}' but its suffix must be one of {', '.join((*_figure.SUFFIXES, '.txt'))}"
            )

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str | None:
        """For notebooks; without matplotlib they show the text."""
        if not _figure.is_available():
            return None
        return _figure.rendered(self.ownership, self.picture, "svg").decode()
