from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built the way a release is: the source archive first, then the wheel from that archive."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY, cwd=folder)
    return next(folder.glob("rl_training-*.whl"))


def test_wheel_holds_types_marker_and_configs(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "rl_training/py.typed" in names
    assert "rl_training/assets/configs/iql/pendulum.yaml" in names


def test_installed_wheel_lists_its_configs_outside_the_clone(wheel, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    binaries = tmp_path / "venv" / "bin"
    install = ("install", "--quiet", "--no-deps", "--no-index", wheel)
    run(sys.executable, "-m", "pip", "--python", binaries / "python", *install, cwd=tmp_path)
    borrow_dependencies(binaries / "python", tmp_path)

    assert "iql/pendulum" in run(binaries / "rl-training", "configs", "ls", cwd=tmp_path)
    home = run(binaries / "python", "-c", "import rl_training; print(rl_training.__file__)", cwd=tmp_path)
    assert Path(home.strip()).is_relative_to(tmp_path)


def borrow_dependencies(python: Path, cwd: Path) -> None:
    """Lets the new venv import what this environment has, less what .pth files add to it: an editable install."""
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=cwd).strip()
    ours = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (Path(site) / "dependencies.pth").write_text("\n".join(ours))
