#!/usr/bin/env python3
"""Draws the first table of a page of results, both axes logarithmic.   plot.py PAGE.md CHART.svg
The first column is x, every other one a line; the table's head names them."""
import math
import sys

COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5", "#9c6b4e"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 150, 16, 48


def first_table(page):
    rows = []
    for line in open(page, encoding="utf-8"):
        if line.startswith("|"):
            rows.append([cell.strip().strip("`") for cell in line.strip().strip("|").split("|")])
        elif rows:
            break
    number = lambda cell: float(cell.replace(",", ""))
    return rows[0], [[number(cell) for cell in row] for row in rows[2:]]


def decades(low, high):
    return [m * 10 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5) if low <= m * 10 ** e <= high]


def draw(head, rows):
    xs, ys = [row[0] for row in rows], [y for row in rows for y in row[1:]]
    across = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / min(xs)) / math.log(max(xs) / min(xs))
    up = lambda y: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(y / (min(ys) * .8)) / math.log(max(ys) / (min(ys) * .64))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for y in decades(min(ys) * .8, max(ys) * 1.25):
        out.append(f'<path d="M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end" fill="#555">{y:,.0f}</text>')
    for x in xs:
        out.append(f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{x:,.0f}</text>')
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 8}" fill="#555">{head[0]}</text>')
    ends = sorted((up(rows[-1][i]), i) for i in range(1, len(head)))
    at = 0
    for y, i in ends:
        colour = COLOURS[(i - 1) % len(COLOURS)]
        line = " ".join(f"{across(row[0]):.1f},{up(row[i]):.1f}" for row in rows)
        at = max(y, at + 15)  # names do not lie on one another
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at + 4:.1f}" fill="{colour}">{head[i]}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(draw(*first_table(sys.argv[1])))
