"""Notes of `compare` and `report` about runs that are hard to compare."""

from __future__ import annotations

import json

import pytest

from rl_training.experiment.bench.plan import read_plan
from rl_training.reporting.comparison import compare, learning_curves
from rl_training.reporting.report.gathering import gather
from rl_training.reporting.report.scores import scored_tasks


def set_steps(run, steps, **changes):
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "steps": steps, **changes}))


def test_seeds_of_unequal_lengths_are_reported(tmp_path, write_run):
    runs = [write_run(tmp_path / f"seed_{seed}", 5, 10, seed=seed) for seed in range(3)]
    assert gather([str(tmp_path)]).notes == []
    set_steps(runs[1], 600, status="early_stop")
    assert gather([str(tmp_path)]).notes == ["X-v1: the runs took unequal steps (sac 100 to 600)"]
    set_steps(runs[1], "many")
    assert gather([str(tmp_path)]).notes == []


def test_a_run_that_still_trains_is_not_called_shorter(tmp_path, write_run):
    write_run(tmp_path / "seed_0", 5, 10)
    set_steps(write_run(tmp_path / "seed_1", 5, 10, seed=1), 10, status="stopped")
    assert gather([str(tmp_path)]).notes == []


def set_source(run, contents):
    source = {"module": "mine", "file": "/home/me/mine.py", "sha256": contents}
    (run / "run.json").write_text(json.dumps({"env_source": source}))


def test_runs_of_an_environment_that_was_edited_between_them_are_reported(tmp_path, write_run):
    runs = [write_run(tmp_path / f"seed_{seed}", 5, 10, seed=seed) for seed in range(4)]
    for run in runs[1:]:  # the first is a run of an earlier version
        set_source(run, "a")
    other = write_run(tmp_path / "other", 5, 10, learning_rate=0.5)
    set_source(other, "a")
    assert compare(tmp_path).notes == gather([str(tmp_path)]).notes == []
    set_source(runs[3], "b")
    versions = "sac learning_rate=0.5 seed 0, sac learning_rate=0.001 seeds 1, 2; sac learning_rate=0.001 seed 3"
    note = (
        f"X-v1: mine.py was edited between runs, so their environments may differ ({versions}); train all of them with "
        "one version of the file"
    )
    assert compare(tmp_path).notes == gather([str(tmp_path)]).notes == [note]


@pytest.mark.parametrize("with_runs", [True, False])
def test_a_bench_keeps_the_source_of_the_environment_of_its_runs(tmp_path, write_run, with_runs):
    folder = tmp_path / "sac-X-v1"
    sources = [{"file": "a/mine.py", "sha256": contents} for contents in "ab"]
    facts = [{"seed": seed, "score": {"return_mean": 4.0}, "curve": [], "env_source": source}
             for seed, source in enumerate(sources)]  # fmt: skip
    folder.mkdir()
    for seed, text in enumerate("ab" if with_runs else ""):
        set_source(write_run(folder / f"seed_{seed}", 1, seed=seed), text)
    (tmp_path / "bench.yaml").write_text("algos: [sac]\nenvs: [X-v1]\nseeds: [0, 1]\n")
    (folder / "result.json").write_text(json.dumps({"algo": "sac", "env": "X-v1", "dataset": None, "runs": facts}))
    for (note,) in (compare(tmp_path).notes, gather([str(tmp_path)]).notes):
        assert note.startswith("X-v1: mine.py was edited between runs")


def test_runs_that_a_callback_stopped_are_left_out_with_the_reason_and_the_remedy(tmp_path, write_run):
    write_run(tmp_path / "seed_0", 5, 10)
    set_steps(write_run(tmp_path / "seed_1", 5, 10, seed=1), 100, status="stopped", stop_reason="solved")
    found = compare(tmp_path)
    assert found.left_out == [f"{tmp_path}/seed_1 (stopped at step 100 of 100: solved)"]
    (note,) = found.notes
    assert note.startswith("a stopped run counts after its command has been repeated and has finished.")
    assert 'request_stop(reason, status="early_stop")' in note
    set_steps(tmp_path / "seed_1", 100, status="early_stop")
    assert [group.seeds for group in compare(tmp_path).groups] == [[0, 1]]


def test_a_report_counts_stopped_runs_that_a_bench_has_scored(tmp_path, write_run):
    folder = tmp_path / "sac-X-v1"
    write_run(folder / "seed_0", 1)
    write_run(folder / "seed_1", 1, seed=1, status="stopped")
    facts = [{"seed": seed, "score": {"return_mean": 4.0 + seed}, "curve": []} for seed in range(2)]
    (tmp_path / "bench.yaml").write_text("algos: [sac]\nenvs: [X-v1]\nseeds: [0, 1]\n")
    (folder / "result.json").write_text(json.dumps({"algo": "sac", "env": "X-v1", "dataset": None, "runs": facts}))
    (group,) = gather([str(tmp_path)]).groups
    assert [member.score for member in group.counted] == compare(tmp_path).tasks[0].entries[0].scores == [4.0, 5.0]
    assert not group.is_preliminary


def write_cells(folder, datasets, data=None):
    """A bench of bc on datasets, whose run directories were deleted; `data` are the hashes of their contents."""
    folder.mkdir()
    (folder / "bench.yaml").write_text(f"algos: [bc]\nenvs: [X-v1]\nseeds: [0]\ndatasets: {json.dumps(datasets)}\n")
    for number, cell in enumerate(read_plan(folder).cells()):
        (folder / cell.name).mkdir()
        run = {"seed": 0, "score": {"return_mean": 4.0 + number}, "curve": [[1, 4.0 + number]]}
        result = {"algo": "bc", "env": "X-v1", "dataset": cell.dataset, "data": data and data[number], "runs": [run],
                  "config": {"algo": "bc", "dataset": cell.dataset}}  # fmt: skip
        (folder / cell.name / "result.json").write_text(json.dumps(result))
    return folder


def test_files_of_the_same_name_in_other_folders_are_different_tasks(tmp_path):
    bench = write_cells(tmp_path / "bench", ["low/cart.npz", "high/cart.npz", "more.npz"])
    names = ["X-v1 from low/cart", "X-v1 from high/cart", "X-v1 from more"]
    found = compare(bench)
    assert [(task.name, [entry.scores for entry in task.entries]) for task in found.tasks] == [
        (name, [[4.0 + number]]) for number, name in enumerate(names)
    ]
    assert [*learning_curves(found)] == [task.name for task in scored_tasks(gather([str(bench)]))] == names


def test_other_paths_of_the_same_data_are_one_task(tmp_path):
    sources = {"a": "cart.npz", "b": "/home/me/low/cart.npz", "c": "/home/you/cart.npz"}
    paths = [write_cells(tmp_path / name, [source], ["one"]) for name, source in sources.items()]
    found = compare(*paths)
    assert [(task.name, len(task.entries)) for task in found.tasks] == [("X-v1 from cart", 3)]
    assert [task.name for task in scored_tasks(gather([*map(str, paths)]))] == ["X-v1 from cart"]


def test_runs_on_several_lists_of_datasets_have_different_labels(tmp_path, write_run):
    for name in "ab":
        write_run(tmp_path / name / "seed_0", 1, top={"dataset": ["x.npz", f"{name}.npz"]})
    labels = [entry.algo for entry in compare(tmp_path).tasks[0].entries]
    assert labels == [f"sac in {tmp_path / name}" for name in "ab"]


def set_data(run, contents, **changes):
    (run / "run.json").write_text(json.dumps({"dataset": contents}))
    config = json.loads((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(json.dumps({**config, **changes}))


def test_runs_on_data_that_changed_between_them_are_reported(tmp_path, write_run):
    runs = [write_run(tmp_path / f"seed_{seed}", 5, 10, seed=seed, top={"dataset": "d.npz"}) for seed in range(4)]
    for run in runs[1:]:  # the first is a run without a hash of its data
        set_data(run, "a")
    other = write_run(tmp_path / "other", 5, 10, algo="iql", top={"dataset": "/home/me/d.npz"})
    set_data(other, "a")
    assert compare(tmp_path).notes == gather([str(tmp_path)]).notes == []
    set_data(runs[3], "b")
    note = (
        "X-v1 from d: runs read different data (iql seed 0, sac seeds 1, 2; sac seed 3); train all of them with the "
        "same data"
    )
    assert compare(tmp_path).notes == gather([str(tmp_path)]).notes == [note]
    set_data(runs[3], "b", rewards={"scale": 0.5})  # read in another way, so that the hashes say nothing
    assert compare(tmp_path, by=["learning_rate"]).notes[:1] == ["sac on X-v1 pools runs that differ in rewards.scale"]
    assert not any("different data" in note for note in compare(tmp_path, by=["learning_rate"]).notes)


def test_a_bench_keeps_the_hashes_of_the_data_of_its_runs(tmp_path):
    bench = write_cells(tmp_path / "bench", ["d.npz"], ["one"])
    later = write_cells(tmp_path / "later", ["d.npz"], ["two"])
    for note in (compare(bench, later).notes[-1], gather([str(bench), str(later)]).notes[-1]):
        assert note.startswith("X-v1 from d: runs read different data (bc in ")
