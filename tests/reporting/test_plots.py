"""Learning curves of runs and of benchmarks."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_training.reporting.comparison import Curve
from rl_training.reporting.plots import save_comparison, save_learning_curve, short_names, spread

Row = dict[str, Any]


def write_run(run_dir: Path, rows: list[Row], ending: str = "") -> Path:
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("algo: sac\nenv_id: Pendulum-v1\nseed: 3\ndataset: null\n")
    (run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + ending)
    return run_dir


def training(step: int, return_: float) -> Row:
    return {"step": step, "updates": step, "critic_loss": 0.1, "episode_return": return_, "time": 0.0}


def evaluation(step: int, mean: float, std: float) -> Row:
    return {"step": step, "evaluation": {"step": step, "return_mean": mean, "return_std": std, "episodes": 10}}


ROWS = [training(200, -1300.0), evaluation(200, -1400.0, 120.0), training(400, -700.0), evaluation(400, -150.0, 80.0)]


@pytest.fixture(autouse=True)
def _matplotlib():
    pytest.importorskip("matplotlib")


@pytest.fixture
def saved_figures(monkeypatch):
    """Figures that were saved, without their files."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    return figures


def band_limits(axes) -> tuple[float, float]:
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    return heights.min(), heights.max()


def test_the_curve_is_a_picture_in_the_run(tmp_path):
    picture = save_learning_curve(write_run(tmp_path / "run", ROWS))
    assert picture == tmp_path / "run" / "curve.png"
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["episode_return", "evaluation"])
def test_training_or_evaluation_alone_is_enough(tmp_path, kind):
    rows = [row for row in ROWS if kind in row]
    assert save_learning_curve(write_run(tmp_path / "run", rows)) == tmp_path / "run" / "curve.png"


def test_a_last_line_cut_short_is_left_out(tmp_path):
    whole, cut = write_run(tmp_path / "whole", ROWS), write_run(tmp_path / "cut", ROWS, ending='{"step": 600, "ep')
    save_learning_curve(whole)
    save_learning_curve(cut)
    assert (cut / "curve.png").read_bytes() == (whole / "curve.png").read_bytes()


def test_without_returns_there_is_nothing_to_draw(tmp_path):
    rows = [{"step": 100, "updates": 100, "critic_loss": 0.5}]
    assert save_learning_curve(write_run(tmp_path / "run", rows)) is None
    assert not (tmp_path / "run" / "curve.png").exists()


def test_without_matplotlib_there_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert save_learning_curve(write_run(tmp_path / "run", ROWS)) is None


def test_the_band_of_a_run_stays_within_the_returns_observed(tmp_path, saved_figures):
    rows = [evaluation(200, 480.0, 40.0), evaluation(400, 20.0, 15.0)]
    for row, returns in zip(rows, ([400.0, 500.0, 500.0], [10.0, 40.0, 10.0]), strict=True):
        row["evaluation"]["returns"] = returns
    save_learning_curve(write_run(tmp_path / "run", rows))
    assert band_limits(saved_figures[0].axes[0]) == (10, 500)


def curve(last: float, *, seeds: int = 3, steps: tuple[int, ...] = (10, 20, 30)) -> Curve:
    return Curve(list(steps), [[*[0.0] * (len(steps) - 1), last + seed] for seed in range(seeds)])


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_comparison_is_written_in_the_format_of_its_suffix(tmp_path, suffix, begin):
    curves = {"X-v1": {"a": curve(7)}, "Y-v1": {}}
    assert save_comparison(curves, tmp_path / f"curves.{suffix}").read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("seeds", "bands", "labels", "caption"),
    [
        ((1, 1), (0, 0), ["a (1 seed)", "b (1 seed)"], ""),
        ((3, 2), (1, 1), ["a (3 seeds)", "b (2 seeds)"], "band: its 95% bootstrap interval"),
        ((1, 2), (0, 1), ["a (1 seed)", "b (2 seeds)"], "band: its 95% bootstrap interval"),
    ],
)
def test_a_panel_has_a_band_where_there_are_several_seeds(saved_figures, seeds, bands, labels, caption):
    a, b = (curve(7, seeds=count) for count in seeds)
    save_comparison({"X-v1": {"a": a}, "Y-v1": {"b": b}}, Path("unwritten.png"))
    (figure,) = saved_figures
    assert tuple(len(axes.collections) for axes in figure.axes) == bands
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == labels
    assert figure.get_supxlabel().removeprefix("line: interquartile mean over seeds; ") == caption


def test_a_band_stays_within_the_returns_of_the_seeds(saved_figures):
    save_comparison({"X-v1": {"a": Curve([1, 2], [[9, 500], [300, 500], [12, 480]])}}, Path("unwritten.png"))
    low, high = band_limits(saved_figures[0].axes[0])
    assert low >= 9
    assert high <= 500


def test_labels_at_the_ends_of_lines_do_not_overlap(tmp_path, saved_figures):
    curves = {"X-v1": {"dqn/x": curve(7), "c51/x": curve(7), "iqn/x": curve(6.9, steps=(10, 20))}}
    save_comparison(curves, Path("unwritten.png"))
    labels, boxes = inside(saved_figures[0])
    assert labels == ["dqn (3 seeds)", "c51 (3 seeds)", "iqn (3 seeds)\nends at 20"]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def inside(figure) -> tuple[list[str], list[Any]]:
    """The texts in the panels and their boxes, all of which must be inside the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(figure).draw()
    texts = [text for axes in figure.axes if axes.get_visible() for text in axes.texts]
    boxes = [Text.get_window_extent(text) for text in texts]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    return [text.get_text() for text in texts], boxes


def test_six_algorithms_have_a_panel_each(saved_figures):
    curves = {f"{name}/x": curve(7) for name in ("dqn", "c51", "qr_dqn", "iqn", "fqf")}
    save_comparison({"X-v1": {**curves, "rainbow/x": curve(7, steps=(10, 20))}}, Path("unwritten.png"))
    (figure,) = saved_figures
    names = ["dqn", "c51", "qr_dqn", "iqn", "fqf", "rainbow"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"{name} (3 seeds)" for name in names]
    assert [len(axes.collections) for axes in figure.axes] == [1] * 6  # a band of its own, none of the others
    assert len({axes.get_lines()[-1].get_color() for axes in figure.axes}) == 6
    assert inside(figure)[0] == ["ends at 20"]


def test_short_names_stay_different():
    assert short_names(["dqn/cartpole", "plans/fast.yaml"]) == ["dqn", "fast"]
    assert short_names(["dqn/cartpole", "dqn/acrobot"]) == ["dqn/cartpole", "dqn/acrobot"]


def test_labels_are_spread_below_the_top():
    assert spread([0.5, 0.5, 0.2], 0.1) == pytest.approx([0.5, 0.6, 0.2])
    assert spread([1.0, 0.99], 0.1) == pytest.approx([1.0, 0.9])


def test_without_evaluations_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match="no curves to draw"):
        save_comparison({"X-v1": {}}, tmp_path / "curves.png")
