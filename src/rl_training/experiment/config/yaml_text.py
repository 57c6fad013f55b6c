"""Reads and writes YAML: plain values only; as in YAML 1.2, `1e-3` is a number and `on` a string."""

import re
from collections import Counter
from collections.abc import Hashable
from typing import Any

import yaml

from rl_training.experiment.config.messages import ConfigError, shown

_MAX_DEPTH = 32
_IMPLICIT = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    "float": (
        r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.inf)|\.nan",
        list("-+.0123456789"),
    ),
}


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(f"anchors and aliases are not allowed, line {event.start_mark.line + 1}")
        if getattr(event, "tag", None):
            raise ConfigError(f"tags are not allowed, line {event.start_mark.line + 1}")
        if self.depth == _MAX_DEPTH:
            raise ConfigError(f"nested deeper than {_MAX_DEPTH} levels, line {event.start_mark.line + 1}")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            key = Counter(key.value for key, _ in node.value).most_common(1)[0][0]
            raise ConfigError(f"{shown(key)} is given twice, line {node.start_mark.line + 1} and after")
        return mapping


class _Dumper(yaml.SafeDumper):
    """Quotes every string that YAML 1.1 or our loader would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {}  # drop those of YAML 1.1
for _kind, (_pattern, _first) in _IMPLICIT.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), _first)


def read_yaml(text: str) -> Any:
    """Parses YAML; rejects anchors, tags and repeated keys, so the value is never larger than its text."""
    try:
        return _Loader(text).get_single_data()
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ConfigError(f"not YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}") from None


def write_yaml(values: Any) -> str:
    """YAML that `read_yaml` parses to equal values, with the keys in order."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False))
