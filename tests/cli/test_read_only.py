"""Files that cannot be written: the error names the file and what to do, if possible before any work is done."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rl_training.envs.rendering.frames import VideoError
from rl_training.experiment.config import packaged
from rl_training.experiment.config.messages import ConfigError
from rl_training.experiment.user_errors import message_of
from rl_training.files import require_writable
from rl_training.runtime.video import Video

REMEDY = "Permission denied; change its permissions, or give another path"
ROWS = "obs_0,actions,rewards,dones,truncated\n0,0,1,0,0\n1,1,1,1,0\n0,0,1,0,0\n1,1,1,1,0\n"


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without write access, also for root."""
    folder = tmp_path / "closed"
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or Path(path) != folder)
    return folder


def denied(*arguments: Any, **options: Any) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied", "somewhere else")


def test_a_file_in_a_closed_directory_is_named(closed: Path):
    with pytest.raises(PermissionError) as caught:
        require_writable(closed, closed / "policy.onnx")
    assert message_of(caught.value) == f"{closed}/policy.onnx: {REMEDY}"
    require_writable(closed.parent, closed.parent / "policy.onnx")


def test_export_checks_the_directory_before_it_writes(cli, finished, closed: Path):
    result = cli("export", finished["run_dir"], "--out", closed / "policy.pt2")
    assert (result.exit_code, result.stderr) == (2, f"error: {closed}/policy.pt2: {REMEDY}\n")


@pytest.mark.parametrize("below", ["", "parts"])
def test_a_split_checks_its_directory_before_it_writes(cli, closed: Path, below: str):
    logs = closed.parent / "logs.csv"
    logs.write_text(ROWS)
    result = cli("data", "split", logs, "--out", closed / below)
    assert (result.exit_code, result.stderr) == (2, f"error: {closed / below}: {REMEDY}\n")


def test_a_config_that_cannot_be_copied_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packaged, "packaged_config_text", lambda name: "algo: iql")
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ConfigError) as caught:
        packaged.copy_config("iql/pendulum", tmp_path / "mine.yaml")
    assert str(caught.value) == f"{tmp_path}/mine.yaml: cannot be written: {REMEDY}"


def test_a_video_that_cannot_be_written_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    video = Video(tmp_path / "videos" / "a.gif")
    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(VideoError) as caught:
        video.save(lambda message: None)
    assert str(caught.value) == f"the video {tmp_path}/videos/a.gif could not be written: {REMEDY}"
