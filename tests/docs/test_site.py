"""The documentation site builds without a warning, and its pages link to files that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ZENSICAL = Path(sys.executable).parent / "zensical"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(ZENSICAL), "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.fixture
def project(tmp_path):
    if not ZENSICAL.exists():
        pytest.skip("zensical is not installed: pip install '.[docs]'")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    return tmp_path


def test_the_site_builds_without_a_warning(project):
    built = build(project)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    api = (project / "site" / "api.html").read_text()
    for name in ("ManagedAlgorithm", "TrainConfig", "TransitionDataset", "Callback", "iql_loss"):
        assert re.search(rf'id="rl_training\.[\w.]*{name}"', api), name


def test_a_warning_fails_the_build(project):
    shutil.rmtree(project / "docs")
    (project / "docs").mkdir()
    (project / "zensical.toml").write_text('[project]\nsite_name = "x"\n')
    for link, fails in (("index.md", False), ("nowhere.md", True)):
        (project / "docs" / "index.md").write_text(f"# Page\n\n[link]({link})\n")
        assert (build(project).returncode != 0) == fails


def test_make_docs_always_rebuilds_and_is_strict():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^\.PHONY:.*\bdocs\b", makefile, re.MULTILINE)
    assert re.search(r"^docs:.*\n\t.*zensical build --clean --strict", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_pictures_of_a_page_exist(page):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "zensical.toml").read_text()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f'"{page}"' not in navigation] == []
