"""Episode ids that occur in several files of a glob."""

from pathlib import Path

import pytest

from rl_training.data import load_transition_dataset
from rl_training.data.datasets.checks import inspect_source


def write(folder: Path, header: str, *files: list[str]) -> str:
    for number, rows in enumerate(files):
        (folder / f"part_{number}.csv").write_text("\n".join([header, *rows]) + "\n")
    return str(folder / "part_*.csv")


def warnings_of(source: str) -> list[str]:
    return [each.sentence for each in inspect_source(source).findings if each.kind == "shared_ids"]


def test_an_id_in_two_files_is_two_episodes_and_a_warning(tmp_path: Path):
    first, second = ["a,0,0,1", "a,1,1,1", "b,2,0,1", "b,3,1,1"], ["b,4,0,1", "b,5,1,1", "c,6,0,1", "c,7,1,1"]
    source = write(tmp_path, "episode,obs_0,actions,rewards", first, second)
    (warning,) = warnings_of(source)
    assert "1 episode id (b) in several files: the rows of each file are another episode" in warning
    assert "if they are one episode, write its rows into one file" in warning
    assert len(load_transition_dataset(source).episode_offsets) == 4
    assert not warnings_of(str(tmp_path / "part_0.csv"))


def test_ids_of_several_columns_are_compared_together(tmp_path: Path):
    header = "patient,visit,obs_0,actions,rewards"
    columns = "patient,visit"
    apart = write(tmp_path, header, ["x,1,0,0,1", "x,1,1,1,1"], ["x,2,2,0,1", "x,2,3,1,1"])
    kinds = {each.kind for each in inspect_source(apart, columns={"episodes": columns}).findings}
    assert "shared_ids" not in kinds
    shared = write(tmp_path, header, ["x,1,0,0,1", "x,1,1,1,1"], ["x,1,2,0,1", "x,1,3,1,1"])
    found = [each.sentence for each in inspect_source(shared, columns={"episodes": columns}).findings]
    assert any("1 episode id (x 1) in several files" in each for each in found)


@pytest.mark.parametrize(("end", "count"), [(1, 0), (0, 1)])
def test_an_episode_with_a_marked_end_is_over(tmp_path: Path, end: int, count: int):
    header = "episode,obs_0,actions,rewards,dones,truncated"
    files = ["7,0,0,1,0,0", f"7,1,1,1,{end},0"], ["7,2,0,1,0,0", "7,3,1,1,1,0"]
    assert len(warnings_of(write(tmp_path, header, *files))) == count
