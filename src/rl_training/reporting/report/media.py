"""Videos and images of the runs of a report: small ones are part of the page, others are linked."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from rl_training.reporting.report.groups import Gathered
from rl_training.reporting.report.texts import bytes_text, relative_link

TYPES = {
    ".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif", ".png": "image/png", ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg", ".webp": "image/webp",
}  # fmt: skip
FOLDERS = ("videos", "images", ".")  # of a run
OWN = ("curve.png",)  # the page draws its own
NEWEST = 6  # files of one run
BUDGET = 1_000_000  # bytes of all files in the page


def media(gathered: Gathered, page: Path, budget: int = BUDGET) -> list[dict[str, Any]]:
    """The newest files of each run. They are embedded while they fit: first the newest of each run, then older ones."""
    found = [
        (rank, group, member.seed, file)
        for group in gathered.groups
        for member in group.members
        for rank, file in enumerate(_files(member.path))
    ]
    embedded: dict[Path, str] = {}
    for _, _, _, file in sorted(found, key=lambda each: each[0]):
        size = file.stat().st_size
        if size <= budget:
            budget -= size
            content = base64.b64encode(file.read_bytes()).decode("ascii")
            embedded[file] = f"data:{TYPES[file.suffix.lower()]};base64,{content}"
    return [
        {
            "number": group.number, "group": group.name, "seed": seed, "name": file.name,
            "kind": TYPES[file.suffix.lower()].partition("/")[0],  # video or image
            "source": embedded.get(file, ""),  # a data URL, or empty if the file is linked
            "link": relative_link(file, page), "size": bytes_text(file.stat().st_size),
        }
        for _, group, seed, file in found
    ]  # fmt: skip


def _files(run: Path) -> list[Path]:
    """Files of the run itself: a link in a run from elsewhere could bring any file of this machine into the page."""
    files = [
        file
        for folder in FOLDERS
        if (run / folder).is_dir()
        for file in (run / folder).iterdir()
        if file.suffix.lower() in TYPES
        and file.name not in OWN
        and file.is_file()
        and file.resolve().is_relative_to(run.resolve())
    ]
    return sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name), reverse=True)[:NEWEST]
