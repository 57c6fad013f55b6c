"""Loads packaged configs by name (`iql/pendulum`) and your own config files by path."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from rl_training.experiment.config.messages import ConfigError, shown, similar_key
from rl_training.experiment.config.yaml_text import read_yaml
from rl_training.messages import describe_system_error

_MAX_BYTES = 1_000_000


def packaged_configs() -> list[str]:
    folders = [folder for folder in _home().iterdir() if folder.is_dir()]
    files = [(folder.name, Path(file.name)) for folder in folders for file in folder.iterdir()]
    return sorted(f"{folder}/{file.stem}" for folder, file in files if file.suffix == ".yaml")


def packaged_config_text(name: str) -> str:
    names = packaged_configs()
    if name not in names:
        hint = similar_key(name, names)
        raise ConfigError(f"no packaged config {shown(name)}{hint} (rl-training configs ls lists them)")
    return (_home() / f"{name}.yaml").read_text(encoding="utf-8")


def load_config(name_or_path: str) -> dict[str, Any]:
    """The mapping in a config file (ending in .yaml or .yml) or in a packaged config, not yet validated."""
    is_path = Path(name_or_path).suffix in (".yaml", ".yml")
    try:
        values = read_yaml(_file_text(Path(name_or_path)) if is_path else packaged_config_text(name_or_path))
    except ConfigError as error:
        raise ConfigError(f"{name_or_path}: {error}" if is_path else str(error)) from None
    if values is None:
        raise ConfigError(f"{name_or_path}: the file is empty; write one key a line, such as algo: ppo")
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name_or_path}: a config must be a mapping, got {shown(values)}")
    return dict(values)


def copy_config(name: str, dest: str | Path) -> Path:
    """Copies a packaged config to a file or into a folder; never overwrites a file."""
    text, path = packaged_config_text(name), Path(dest)
    path = path / f"{Path(name).name}.yaml" if path.is_dir() else path
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} already exists; choose another file or remove it first") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {describe_system_error(error)}") from None
    return path


def _home() -> Any:  # the module of Traversable differs between Python versions
    return resources.files("rl_training") / "assets" / "configs"


def _file_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise ConfigError("no such file")
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"larger than {_MAX_BYTES:,} bytes; a config is a small text file")
        return raw.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError("not a text file in UTF-8") from None
