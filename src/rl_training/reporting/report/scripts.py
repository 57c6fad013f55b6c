"""The plotting library of a report, read from the installed Bokeh, and the scripts and styles of the page."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).parent / "assets"
LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")
MISSING = "a report needs Bokeh and Jinja2: pip install 'rl-training[report]'"


@cache
def library() -> list[str]:
    """The scripts of BokehJS. Bokeh's Python modules are not imported: the page builds its plots itself."""
    found = find_spec("bokeh")
    if found is None or found.origin is None:
        raise ImportError(MISSING)
    folder = Path(found.origin).parent / "server" / "static" / "js"
    return [inline((folder / name).read_text(encoding="utf-8")) for name in LIBRARY]


def own_script() -> str:
    return inline((ASSETS / "page.js").read_text(encoding="utf-8"))


def own_style() -> str:
    return (ASSETS / "page.css").read_text(encoding="utf-8")


def inline(script: str) -> str:
    """A script that cannot end its element, without a reference to a source map."""
    without_map = re.sub(r"^//# sourceMappingURL=.*$", "", script, flags=re.MULTILINE)
    return re.sub(r"</(?=script)", r"<\\/", without_map, flags=re.IGNORECASE).replace("<!--", r"<\!--")


def inline_json(value: Any) -> str:
    """JSON that cannot end its element, whatever the text in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
