# SPDX-License-Identifier: GPL-2.0
"""Line plots as SVG, both axes logarithmic."""

import math
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 400, 80, 20, 40, 50
_COLOURS = ("#1b6ca8", "#c8553d", "#6a994e", "#7b2d8b")


def _scale(values, low, high):
    """Where a value is between low and high, and the powers of ten around all values."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    last = max(last, first + 1)

    def place(value):
        return low + (math.log10(value) - first) / (last - first) * (high - low)

    return place, [10 ** n for n in range(first, last + 1)]


def _text(x, y, text, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(text)}</text>'


def _line(x1, y1, x2, y2):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def lines(title, x_label, y_label, series, x_name=str):
    """series: {name: [(x, y)]}, all above 0. x_name writes a tick of the x axis."""
    points = [point for line in series.values() for point in line]
    xs = sorted({x for x, _ in points})
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    low, high = math.log(xs[0]), math.log(xs[-1])

    def place_x(x):
        return _LEFT + (math.log(x) - low) / ((high - low) or 1) * (right - _LEFT)

    place_y, y_ticks = _scale([y for _, y in points], bottom, _TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
           _text(_WIDTH / 2, 22, title, extra='font-size="15"'),
           _text((_LEFT + right) / 2, _HEIGHT - 10, x_label),
           _text(16, (_TOP + bottom) / 2, y_label,
                 extra=f'transform="rotate(-90 16 {(_TOP + bottom) / 2})"')]
    for y in y_ticks:
        out += [_line(_LEFT, place_y(y), right, place_y(y)),
                _text(_LEFT - 6, place_y(y) + 4, f"{y:g}" if y < 1e4 else f"{y:.0e}", "end")]
    for x in xs:
        out += [_line(place_x(x), _TOP, place_x(x), bottom),
                _text(place_x(x), bottom + 16, x_name(x), extra='font-size="10"')]
    for number, ((name, line), colour) in enumerate(zip(series.items(), _COLOURS)):
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3" fill="{colour}"/>'
                for x, y in line]
        out.append(_text(_LEFT + 10, _TOP + 16 + 16 * number, name, "start", f'fill="{colour}"'))
    return "\n".join([*out, "</svg>"]) + "\n"
