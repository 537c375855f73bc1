"""The picture's colours, told apart with any kind of colour blindness."""

from __future__ import annotations

__all__ = ["EMPTY", "FAINT", "INK", "PAPER", "ink_on", "share_color"]

INK, FAINT, EMPTY, PAPER = "#222222", "#777777", "#E8E8E8", "#FFFFFF"

# The set of Okabe and Ito, with wine in place of black.
_DISTINCT = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#882255")
# From dark blue to yellow in even steps of lightness.
_SCALE = ((0, 34, 78), (67, 78, 108), (125, 124, 120), (188, 175, 111), (254, 232, 56))
_MAX_SHARES_IN_TURN = 128

# How bright red, green and blue look, and from which brightness on dark text reads better.
_BRIGHTNESS = (0.299, 0.587, 0.114)
_BRIGHT = 125


def share_color(number: int, count: int) -> str:
    """The colour of share ``number`` of ``count``.

    Up to 128 shares have eight colours in turn: neighbours differ, and labels tell the rest apart. More have a scale:
    the colour says about which share it is.
    """
    if count <= _MAX_SHARES_IN_TURN:
        return _DISTINCT[number % len(_DISTINCT)]
    segment, between = divmod(number / (count - 1) * (len(_SCALE) - 1), 1)
    low, high = _SCALE[int(segment)], _SCALE[min(int(segment) + 1, len(_SCALE) - 1)]
    return "#" + "".join(f"{round(a + (b - a) * between):02X}" for a, b in zip(low, high, strict=True))


def ink_on(color: str) -> str:
    """Dark or light, whichever reads better on ``color``."""
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    brightness = sum(weight * channel for weight, channel in zip(_BRIGHTNESS, channels, strict=True))
    return INK if brightness > _BRIGHT else PAPER
