#!/usr/bin/env python3
"""Takes pictures of the page of `knapsack serve` with scripted answers: three widths, light, dark.

    scripts/page_screenshots.py [FOLDER]        default: docs/img

Needs Chromium. Uses pngquant and optipng, if they are there, to make the files smaller.
"""

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "tools", "lib"))
from browser import Browser, find_chromium  # noqa: E402
from mock_server import MockServer  # noqa: E402
from page_scene import play  # noqa: E402

SIZES = {360: 760, 768: 960, 1280: 860}  # CSS pixels
SCALE = 1.5


def shrink(path):
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--output", path, "64", path], check=True)
    if shutil.which("optipng"):
        subprocess.run(["optipng", "-quiet", "-o4", path], check=True)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs", "img")
    if not find_chromium():
        sys.exit("page_screenshots: Chromium is not installed: apt-get install chromium")
    with open(os.path.join(ROOT, "tools", "serve", "page.html"), "rb") as f:
        server = MockServer(f.read())
    with Browser() as browser:
        browser.view(1280, SIZES[1280])
        browser.open(server.url)
        play(server, browser)
        for width, height in SIZES.items():
            for scheme in ("light", "dark"):
                browser.view(width, height, scheme == "dark", SCALE)
                browser.js("toggleMemory(true); toEnd(); document.activeElement.blur()")
                browser.js("new Promise(done => setTimeout(done, 600))")  # transitions
                path = os.path.join(folder, f"page-{width}-{scheme}.png")
                browser.screenshot(path)
                shrink(path)
                print(f"{path}: {os.path.getsize(path):,} bytes")


if __name__ == "__main__":
    main()
