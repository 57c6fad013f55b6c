"""Writes the results and pictures of docs/performance.md from benchmarks/results; results_table.py calls it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from speed_cases.pictures import draw_growth, draw_ratios

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
BEGIN, END = "<!-- results: written by benchmarks/results_table.py -->\n", "<!-- end of the results -->\n"
Result = dict[str, Any]


def write_page() -> None:
    """Replaces the results in the page and draws the pictures."""
    PAGE.write_text(whole_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for file, result in stored("trainings").items():
        draw_ratios(result, DOCS / "pictures" / picture_of(file))
    for file, result in stored("growth").items():
        draw_growth(result, DOCS / "pictures" / picture_of(file))


def whole_page(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + "\n".join(sections()) + "\n" + END + after


def stored(kind: str) -> dict[str, Result]:
    """Results of one case: KIND.json, and KIND_MACHINE.json of further machines."""
    files = [RESULTS / f"{kind}.json", *sorted(RESULTS.glob(f"{kind}_*.json"))]
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()}


def picture_of(file: str) -> str:
    return {"trainings": "speed.png", "growth": "speed_growth.png"}.get(file, f"speed_{file}.png")


def sections() -> list[str]:
    kinds = {
        "trainings": trainings,
        "compiled": compiled,
        "gpu_training": gpu,
        "growth": growth,
        "ceiling": ceiling,
        "startup": startup,
    }
    found = [written(file, result) for kind, written in kinds.items() for file, result in stored(kind).items()]
    return found or ["No results are stored yet.\n"]


def trainings(file: str, result: Result) -> str:
    peers = list(dict.fromkeys(peer for each in result["trainings"].values() for peer in each["ratios"]))
    rows = []
    for each in result["trainings"].values():
        rate = median(each["steps_per_second"].get("rl_training", [0]))
        rows.append([each["what"], f"{rate:,.0f}", *(ratio(each["ratios"].get(peer)) for peer in peers)])
    totals = [
        [each["what"], f"{median(each['total_seconds']['rl_training']):.1f} s"]
        + [ratio(each["total_ratios"].get(peer)) for peer in peers]
        for each in result["trainings"].values()
        if "rl_training" in each["total_seconds"]
    ]
    times = [f"speed / {peer}" for peer in peers]
    compiling = ", with `--compile on`" if "--compile on" in result["commands"][0] else ""
    images = ", from images" if all("from images" in each["what"] for each in result["trainings"].values()) else ""
    versions = {name: text for each in result["trainings"].values() for name, text in peer_versions(each).items()}
    return "\n".join([
        f"### Whole trainings, {result['hardware'].partition(',')[0]}{images}{compiling}\n",
        f"Steps per second after the start (offline: updates per second), and this speed divided by that of each "
        f"other library: {repeats_of(result)}.\n",
        table(["training", "rl_training, per second", *times], rows),
        f"![Speed divided by that of each other library](pictures/{picture_of(file)})\n",
        "Total time of the same trainings, from the start of the process to its end, and the same ratio:\n",
        table(["training", "rl_training", *times], totals),
        f"Other libraries: {'; '.join(versions.values())}.\n",
        source(file, result),
    ])  # fmt: skip


def peer_versions(training: Result) -> dict[str, str]:
    return {
        name: f"{name} ({', '.join(f'{package} {version}' for package, version in versions.items())})"
        for name, versions in training["versions"].items()
    }


def repeats_of(result: Result) -> str:
    count = len(result["seeds"])
    return "one training each" if count == 1 else f"median of {count} trainings [smallest, largest]"


def ratio(each: dict[str, float] | None) -> str:
    if each is None:
        return ""
    spread = "" if each["min"] == each["max"] else f" [{each['min']:.2f}, {each['max']:.2f}]"
    return f"{each['median']:.2f}{spread}"


def compiled(file: str, result: Result) -> str:
    forms = list(dict.fromkeys(form for each in result["updates"].values() for form in each))
    rows = []
    for name, times in result["updates"].items():
        best = times["float32"] / min(times.values())
        rows.append([f"`{name}`", *(f"{times[form]:.3g}" if form in times else "" for form in forms), f"{best:.2f}"])
    return "\n".join([
        f"### Updates on a CPU, {result['hardware'].partition(',')[0]}\n",
        "Milliseconds of an update with the default options. The gain is the time of the first form divided by that of "
        "the fastest.\n",
        table(["algorithm", *forms, "gain"], rows),
        source(file, result),
    ])  # fmt: skip


def gpu(file: str, result: Result) -> str:
    rows = []
    for name, each in result["trainings"].items():
        if each.get("rate") is None:
            continue
        reached = [f"{key.removeprefix('seconds_to_')} points {value:.1f} s later" for key, value in each.items()
                   if key.startswith("seconds_to_") and value is not None]  # fmt: skip
        rate = f"{each['rate']:,.0f} {each['unit']}"
        rows.append([name, rate, each["goal"], f"{each['first_row_seconds']:.1f} s", ", ".join(reached)])
    return "\n".join([
        "### Trainings on a GPU\n",
        "Rates after the start, summed over seeds. A number at the end of a name is the number of seeds.\n",
        table(["training", "rate", "goal", "command to first log entry", ""], rows),
        source(file, result),
    ])  # fmt: skip


def growth(file: str, result: Result) -> str:
    rows = [[name, "; ".join(f"{int(value):,}: {rate:,.0f}" for value, rate in found.items())]
            for name, found in result["rates"].items()]  # fmt: skip
    return "\n".join([
        f"### Scaling on {result['device']}\n",
        f"![{result['what']}](pictures/{picture_of(file)})\n",
        table(["varied", "value: rate per second"], rows),
        source(file, result),
    ])  # fmt: skip


def ceiling(file: str, result: Result) -> str:
    limits = result["limits"]
    steps = limits["environment steps a second"]
    rows = [[f"{name}, steps a second of one environment", f"{rate:,.0f}"] for name, rate in steps.items()]
    for device, kinds in limits.items():
        for kind, rates in kinds.items() if kinds is not steps else ():
            rows += [[f"{device}, {kind}: {name}", f"{rate:,.0f}"] for name, rate in rates.items()]
    return "\n".join(["### Limits of the machine\n", table(["what", "rate"], rows), source(file, result)])


def startup(file: str, result: Result) -> str:
    return f"### Start-up time\n\n{result['what']}: {result['result']}.\n\n{source(file, result)}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def source(file: str, result: Result) -> str:
    """The file, command, machine, commit and versions of a result."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"`{result['commands'][0]}`, stored in `benchmarks/results/{file}.json`. "
        f"Machine: {result['hardware']}. Commit {result['commit']}. {versions}.\n"
    )
