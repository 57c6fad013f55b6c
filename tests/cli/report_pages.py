"""Writes the page of `report` and reads its text, elements and scripts."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from rl_training.reporting.report import Options, write_report


class Page(HTMLParser):
    """The visible text of a page, its elements, and its scripts."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(file.read_text(encoding="utf-8"))
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.words.append(data)

    @property
    def data(self):
        return json.loads(next(script for script in self.scripts if script.startswith('{"groups"')))


def page_of(folder: Path, *paths: Path | str, **options) -> Page:
    write_report(paths or [folder], folder.parent / "page.html", Options(**options))
    return Page(folder.parent / "page.html")
