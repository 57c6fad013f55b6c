"""Decides which modules a config may import: those that were trained with on this machine, and those in `trust`."""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rl_training.envs.creation.modules import changed_source, module_of
from rl_training.envs.device.names import is_built_in
from rl_training.experiment.config.messages import shown
from rl_training.experiment.config.train_config import TrainConfig
from rl_training.messages import Warn
from rl_training.modules import UntrustedModuleError, approve, module_files, module_in

Trust: TypeAlias = str | Iterable[str]
Config: TypeAlias = TrainConfig | Mapping[str, Any]
Remembered = dict[str, list[list[str]]]  # module -> the files of each place it was used from


def modules_of(config: Config) -> list[str]:
    """Returns every module that a config, checked or not, names for import."""
    values = _values(config)
    parts = values.get("dataset") if isinstance(values.get("dataset"), list | tuple) else [values.get("dataset")]
    recipes = [part.get("env_id") for part in parts or () if isinstance(part, Mapping)]
    environments = env_modules([values.get("env_id"), *recipes], values.get("env_kwargs"), values.get("env_wrappers"))
    return list(dict.fromkeys([*learner_modules(values), *environments, *_named(values.get("callbacks"))]))


def learner_modules(config: Config) -> list[str]:
    """Returns the modules that a config names for its algorithm and its network."""
    values = _values(config)
    options = values.get("algo_kwargs")
    networks = [values.get("network"), options.get("network") if isinstance(options, Mapping) else None]
    return list(dict.fromkeys([*_named([values.get("algo")]), *_named(networks)]))


def env_modules(env_ids: Iterable[object], options: Any, wrappers: Any = ()) -> list[str]:
    """Returns the modules named in ids and wrappers, and in options, from which some environments import."""
    ids = [module_of(each) for each in env_ids if isinstance(each, str) and not is_built_in(each)]
    texts = [re.match(r"([^\W\d]\w*(?:\.\w+)*):\w", text) for text in _texts([options, wrappers])]
    named = [text[1] for text in texts if text is not None and module_files(text[1]) is not None]
    return list(dict.fromkeys([*(module for module in ids if module is not None), *_named(wrappers), *named]))


def _values(config: Config) -> Mapping[str, Any]:
    return config.model_dump() if isinstance(config, TrainConfig) else config


def _named(value: Any) -> list[str]:
    """Returns the modules of every text of the form `module:Name`."""
    return [module for text in _texts(value) if (module := module_in(text)) is not None]


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]  # no recursion: a file may nest values deeply
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping | list | tuple):
            waiting += each.values() if isinstance(each, Mapping) else each


def trusted_names(trust: Trust) -> tuple[str, ...]:
    names = (trust,) if isinstance(trust, str) else tuple(trust) if isinstance(trust, Iterable) else (trust,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"trust must be the name of a module or a list of names, got {shown(trust)}")
    return names


def require_trusted(modules: Iterable[str], trust: Trust, source: Path | str) -> None:
    """Raises UntrustedModuleError, before anything is imported, for a module of the file `source` without trust.

    Modules that pass are approved for import in this process.
    """
    allowed, remembered, modules = trusted_names(trust), None, list(modules)
    for module in modules:
        if module in allowed:
            continue
        files = module_files(module)
        remembered = _read(_store()) if remembered is None else remembered
        if files is None or [*map(str, files)] not in remembered.get(module, []):
            raise UntrustedModuleError(_untrusted(source, module, files, remembered.get(module, [])))
    approve(modules)


def _untrusted(source: Path | str, module: str, files: Sequence[Path] | None, used: Sequence[Sequence[str]]) -> str:
    """Returns what to do about a module that would be imported from `files`; `used` are those trained with before."""
    named, place = f"{source} names the module {shown(module)}", "" if files is None else f" from {files[-1]}"
    fix = f"add --trust {_plain(module)} (trust={shown(module)} in Python)"
    known = used[-1][-1] if used else None
    if known is None or (files is not None and known == str(files[-1])):  # None, or another parent package
        new = "and which you have not trained with on this machine"
        return f"{named}, which would be imported{place} {new}; if you trust its code, {fix}"
    before = known if Path(known).is_file() else f"{known}, which no longer exists"
    if files is None:
        return (
            f"{named}, which is neither installed nor in {os.getcwd()}; you trained with {before}. Run this in the "
            "folder that holds the module, or add that folder to PYTHONPATH"
        )
    return (
        f"{named}, which would be imported{place}; you trained with {before}. If you moved or copied the module, or "
        f"trust its code, {fix}"
    )


def approve_typed(config: Config, typed: Mapping[str, Any], file: Path | None, trust: Trust) -> None:
    """Approves the modules of a config that the user has given; call it before the config is parsed.

    If its file is part of a run, which may be somebody else's, only modules that were `typed` now need no trust.
    """
    if file is not None and any((file.parent / name).exists() for name in ("run.json", "checkpoints")):
        require_trusted(modules_of(config), (*trusted_names(trust), *modules_of(typed)), file)
    approve(modules_of(config))


def _plain(module: str) -> str:
    return module if re.fullmatch(r"[\w.-]+", module) else shown(module)


def remember(config: TrainConfig, warn: Warn) -> None:
    """Records the modules of a config that the user trains with, and their files."""
    approve(modules_of(config))
    found = {module: files for module in modules_of(config) if (files := module_files(module)) is not None}
    used = {module: [*map(str, files)] for module, files in found.items()}
    store = _store()
    known = _read(store)
    if all(files in known.get(module, []) for module, files in used.items()):
        return
    try:
        if store is None:
            raise OSError("there is no home directory")
        _add(store, used)
    except OSError as error:
        names = " ".join(f"--trust {module}" for module in used)
        where = "" if store is None else f" in {store.parent}"
        warn(f"cannot remember{where} that you use {', '.join(used)} ({error}); evaluate and resume will need {names}")


def _add(store: Path, used: Mapping[str, list[str]]) -> None:
    import fcntl

    store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(store.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _read(store)
        for module, files in used.items():
            known[module] = [*(each for each in known.get(module, []) if each != files), files]
        with tempfile.NamedTemporaryFile("w", dir=store.parent, prefix=".trusted-", delete=False) as file:  # mode 600
            json.dump({"modules": known}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, store)
    finally:
        os.close(lock)


def _store() -> Path | None:
    config = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        folder = config if config.is_absolute() else Path.home() / ".config"
    except RuntimeError:  # no home directory
        return None
    return folder / "rl_training" / "trusted.json"


def _read(store: Path | None) -> Remembered:
    """Returns what is remembered; nothing if the file is missing, damaged, or writable by other users."""
    try:
        with open(store or os.devnull, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return {}
            modules = json.load(file)["modules"]
            return {str(name): [[str(file) for file in files] for files in places] for name, places in modules.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def changed_sources(records: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Returns source files of environments that differ from those recorded in run.json files, each once."""
    files = (changed_source(record.get("env_source")) for record in records)
    return list(dict.fromkeys(file for file in files if file is not None))


def warn_of_changed_source(
    *records: Mapping[str, Any], warn: Warn, runs: str = "this run", known: Iterable[Path] = ()
) -> None:
    """Warns of each file of `changed_sources`, except those in `known`. The records are those of `runs`."""
    for file in changed_sources(records):
        if file not in known:
            warn(f"{file} differs from the file that defined the environment when {runs} started; results may differ")
