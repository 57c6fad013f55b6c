"""MuJoCo's warnings about Gymnasium's own models are hidden, and no others."""

from pathlib import Path

import pytest

from rl_training.envs.creation.making import make_env

mujoco = pytest.importorskip("mujoco")
OLD_MODEL = '<mujoco><compiler settotalmass="1"/></mujoco>'


@pytest.fixture
def warnings_of_mujoco():
    received: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(received.append)
    yield received
    mujoco.set_mju_user_warning(before)


def test_gymnasiums_models_print_nothing_and_write_no_log(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    make_env("HalfCheetah-v5").close()
    assert tuple(capfd.readouterr()) == ("", "")
    assert not list(tmp_path.iterdir())


def test_warnings_about_other_models_are_not_hidden(warnings_of_mujoco: list[str]):
    make_env("HalfCheetah-v5").close()
    assert warnings_of_mujoco == []
    mujoco.MjModel.from_xml_string(OLD_MODEL)
    assert len(warnings_of_mujoco) == 1
