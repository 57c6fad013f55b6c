"""Reads the rows of the table from benchmarks/results: single results, peers and cells of a bench."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.data import normalized_score
from rl_training.experiment.config.packaged import load_config, packaged_configs
from scores import references
from scores.rows import FAMILIES, Peer, Row, family_of

# Options of `--set` that do not change what is learned.
HARMLESS = ("eval_interval", "eval_episodes", "checkpoint_interval", "compile", "env_workers")


def stored_rows(results: Path) -> list[Row]:
    """All rows, by family, environment and dataset, in the order of FAMILIES."""
    rows = [row for file in sorted(results.glob("*.json")) for row in _file_rows(file)]
    rows += [row for file in sorted(results.glob("*/*/result.json")) for row in _cell_rows(file, results)]
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    family = list(FAMILIES).index(row.family)
    algo = FAMILIES[row.family][1].index(row.algo) if row.algo in FAMILIES[row.family][1] else -1
    return family, row.env, row.dataset or "", algo, row.setting or "", row.config or "", row.budget


def _file_rows(file: Path) -> Iterator[Row]:
    result = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(result, dict):  # table.json
        return
    scores = result.get("scores", {})
    if "ours" in scores and "theirs" in scores:
        yield Row(**_named(file.name, result), seeds=scores["ours"], peer=_peer(result))
    elif "runs" in result:
        yield from _rows(result["runs"], **_named(file.name, result))


def _peer(result: Mapping[str, Any]) -> Peer:
    return Peer(result.get("peer", "stable-baselines3"), result["scores"]["theirs"], result.get("seconds"))


FIELDS = ("algo", "env", "dataset", "config", "budget", "planned", "setting", "family", "measure", "episodes")


def _named(file: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row except the scores: stored ones, or those of the command that trained it."""
    found: dict[str, Any] = {"dataset": None} if "algo" in result else described(result["commands"][0])
    found |= {name: result[name] for name in FIELDS if name in result}
    if "ours" in result.get("scores", {}):
        found["setting"] = f"settings of {_peer(result).name}"
    kept = {name: result.get(name) for name in ("commands", "hardware", "commit", "note")}
    return {"file": file, "family": family_of(found["algo"]), **found, **kept}


def described(command: str) -> dict[str, Any]:
    """Algorithm, environment, dataset, config and budget of an `rl-training train` command."""
    words = shlex.split(command)
    words = words[words.index("train") + 1 :]
    learner, options = words[0], dict(_options(words[1:]))
    env_ids = [word for word in words[1:2] if not word.startswith("--")]
    config = load_config(learner) if "/" in learner else {"algo": learner}
    changes = [change.partition("=")[0] for change in options.get("--set", [])]
    unchanged = not env_ids and all(change in HARMLESS for change in changes) and learner in packaged_configs()
    data = options.get("--dataset", [None])[0]
    total = config.get("total_timesteps")
    return {
        "algo": config["algo"],
        "planned": total,
        "env": env_name(env_ids[0] if env_ids else config.get("env_id", "")),
        "dataset": None if data is None else Path(data).stem,
        "config": learner if unchanged else None,
        "budget": int(options["--steps"][0] if "--steps" in options else total),
    }


def _options(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for option in dict.fromkeys(word for word in words if word.startswith("--")):
        places = [place for place, word in enumerate(words[:-1]) if word == option]
        yield option, [words[place + 1] for place in places]


def env_name(env_id: str) -> str:
    """The id without the module that registers it."""
    return env_id.rpartition(":")[2]


def _rows(runs: Sequence[Mapping[str, Any]], **named: Any) -> Iterator[Row]:
    """The row of the last scores, and rows of earlier evaluations at budgets for which there is a figure to compare."""
    task = (named["algo"], named["env"], named["dataset"])
    known = (*references.published(), *references.peers())
    figures = references.comparable(known, task, named.get("setting"))
    earlier = []
    for budget in sorted({figure.budget for figure in figures if figure.budget and figure.budget < named["budget"]}):
        if (seeds := _at(budget, runs, "curve")) is None:
            continue
        earlier.append(budget)
        changed = {"budget": budget, "planned": None, "episodes": None, "final": False}
        yield Row(**{**named, **changed}, seeds=seeds, training_returns=_at(budget, runs, "training_curve"))
    yield Row(
        **named, seeds=[float(run["score"]) for run in runs], returns=_all(runs, "return"),
        training_returns=_all(runs, "training_return"), earlier=tuple(earlier),
    )  # fmt: skip


def _at(budget: int, runs: Sequence[Mapping[str, Any]], curve: str) -> list[float] | None:
    """The values of all runs at a budget, or less than 1% after it; None if one has none."""
    found = [next((value for step, value in run.get(curve, ()) if is_at(budget, step)), None) for run in runs]
    return None if None in found else [float(value) for value in found if value is not None]


def is_at(budget: int, step: int) -> bool:
    """Whether an evaluation is the one of a budget: the last collection may go a little further."""
    return 0 <= step - budget < 0.01 * budget


def _all(runs: Sequence[Mapping[str, Any]], name: str) -> list[float] | None:
    values = [run.get(name) for run in runs]
    return None if None in values else [float(value) for value in values if value is not None]


def _cell_rows(file: Path, results: Path) -> Iterator[Row]:
    cell = json.loads(file.read_text(encoding="utf-8"))
    if any("return_mean" not in run["score"] for run in cell["runs"]):  # estimates from data
        return
    config = load_config(cell["algo"]) if "/" in cell["algo"] else {"algo": cell["algo"]}
    normalized = cell["dataset"] is not None and all("normalized_score" in run["score"] for run in cell["runs"])
    runs = [_cell_run(run, cell["env"] if normalized else None) for run in cell["runs"]]
    yield from _rows(
        runs, algo=config["algo"], env=env_name(cell["env"]),
        planned=config.get("total_timesteps"),
        dataset=None if cell["dataset"] is None else Path(cell["dataset"]).stem,
        config=cell["algo"] if _is_unchanged(cell) else None, setting=cell.get("setting"),
        budget=_budget(cell, config), measure="normalized score" if normalized else "return",
        episodes=cell["runs"][0]["score"]["episodes"], family=family_of(config["algo"]),
        file=str(file.parent.relative_to(results)), commands=cell["commands"],
        hardware=", ".join(f"{name}: {value}" for name, value in cell["hardware"].items() if value is not None),
        commit=", ".join(sorted({run["commit"] or "unknown" for run in cell["runs"]})),
    )  # fmt: skip


def _is_unchanged(cell: Mapping[str, Any]) -> bool:
    """Whether a cell trained a packaged config as it is today; `setting` says what has changed since."""
    return cell["algo"] in packaged_configs() and "--set" not in cell["commands"][0] and "setting" not in cell


def _budget(cell: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    steps, planned = min(run["steps"] for run in cell["runs"]), config.get("total_timesteps", 0)
    return int(planned if is_at(planned, steps) else steps)


def _cell_run(run: Mapping[str, Any], normalized_by: str | None) -> dict[str, Any]:
    """The run of a cell as single results store it; `normalized_by` is the environment of normalized scores."""
    score, curve = run["score"], run["curve"]
    training = (run.get("metrics") or {}).get("episode_return")
    if normalized_by is None:
        return {"score": score["return_mean"], "training_return": training, "curve": curve}
    curve = [(step, normalized_score(normalized_by, value)) for step, value in curve]
    return {"score": score["normalized_score"], "return": score["return_mean"], "curve": curve}
