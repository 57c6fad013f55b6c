"""Several files with the same columns in another order, which a pattern such as action_* takes as they come."""

from pathlib import Path

import pytest

from rl_training.data import load_transition_dataset, mix_transition_datasets, save_transition_dataset

ROWS = {"episode": (0, 0), "obs_x": (1, 2), "obs_y": (3, 4), "action_a": (0, 1), "action_b": (1, 0), "reward": (1, 1),
        "done": (0, 1)}  # fmt: skip
PATTERNS = {"obs": "obs_*", "actions": "action_*"}
SWAPPED = {"obs": ["obs_y", "obs_x"], "actions": ["action_b", "action_a"]}


def written(path: Path, swapped: str = "") -> str:
    names = [*dict.fromkeys([*SWAPPED.get(swapped, ()), *ROWS])]
    rows = zip(*(ROWS[name] for name in names), strict=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in (names, *rows)))
    return str(path)


@pytest.mark.parametrize(
    ("name", "own", "first"),
    [("obs", "obs_y,obs_x", "obs_x,obs_y"), ("actions", "action_b,action_a", "action_a,action_b")],
)
def test_files_and_datasets_whose_columns_are_in_another_order_are_refused(tmp_path, name, own, first):
    files = [written(tmp_path / "a.csv"), written(tmp_path / "b.csv", name)]
    message = rf"has the {name} {own}, but .* has {first}; name them in one order with --columns {name}={first}"
    with pytest.raises(ValueError, match=message):
        load_transition_dataset(files, columns=PATTERNS)
    datasets = [load_transition_dataset(file, columns=PATTERNS) for file in files]
    with pytest.raises(ValueError, match=f"dataset 2 {message}"):
        mix_transition_datasets(datasets)
    converted = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for dataset, path in zip(datasets, converted, strict=True):
        save_transition_dataset(dataset, path)
    with pytest.raises(ValueError, match=message):
        load_transition_dataset(converted)
    named = load_transition_dataset(files, columns={**PATTERNS, name: first})
    assert named.columns[name].tolist() == 2 * datasets[0].columns[name].tolist()
