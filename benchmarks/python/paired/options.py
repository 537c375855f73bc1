"""Options of more than one program."""

from __future__ import annotations

import argparse
import re


def pairs_option(parser: argparse.ArgumentParser, default: int) -> None:
    """Adds --pairs."""
    parser.add_argument(
        "--pairs", type=_pairs, default=default, help="timed pairs of a row (default %(default)s; at least 15)"
    )


def regex(text: str) -> re.Pattern[str]:
    """The type of an option that is a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def _pairs(text: str) -> int:
    # Quartiles need two.
    if not text.isdecimal() or int(text) < 2:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 2")
    return int(text)
