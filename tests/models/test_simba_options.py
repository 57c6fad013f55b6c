"""Options that both kinds of SimBa networks have: widths, defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rl_training.algorithms import CATALOGUE
from rl_training.models.layers import Layers
from rl_training.types import EnvSpec

TAKEN_BY = {
    "simba": ("crossq", "mbpo", "redq", "sac", "td3", "tqc"),
    "simba_v2": ("mbpo", "redq", "sac", "td3", "tqc"),
}
SMALL = {"hidden_sizes": [8], "critic_hidden_sizes": [6, 6]}
both_kinds = pytest.mark.parametrize("kind", TAKEN_BY)


def options_of(name: str) -> Any:
    return CATALOGUE[name].config_type


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TAKEN_BY.items() for name in names])
def test_the_word_alone_has_the_widths_of_the_paper_and_normalises_observations(kind, name):
    options = options_of(name)
    config = options(network=kind)
    assert (config.hidden_sizes, config.normalize_obs) == ((128,), True)
    assert Layers.from_config(EnvSpec((3,), "box", 1), config).critic_sizes == (512, 512)
    assert options().normalize_obs is False
    assert options(network=kind, normalize_obs=False).normalize_obs is False


@pytest.mark.parametrize(("kind", "name"), [("simba", "crossq"), ("simba_v2", "tqc")])
def test_a_stored_config_is_read_as_it_was_written(kind, name):
    for given in ({"network": kind}, {"network": {"kind": kind, **SMALL}}, {"network": kind, "hidden_sizes": [4, 4]}):
        config = options_of(name)(**given)
        assert options_of(name)(**config.model_dump(mode="json")) == config


@both_kinds
@pytest.mark.parametrize(("network", "message"), [
    ({"hidden_sizes": [8, 4]}, r"hidden_sizes of a {kind} network .* got \[8, 4\]"),
    ({"critic_hidden_sizes": []}, "critic_hidden_sizes of a {kind} network"),
    ({"layer_norm": False}, "{kind} has a normalisation of its own in every block"),
    ({"layer_norm": True}, "{kind} has a normalisation of its own in every block"),
    ({"blocks": 2}, "unknown key 'blocks'; {kind} has hidden_sizes"),
])  # fmt: skip
def test_what_such_a_network_cannot_be_is_refused(kind, network, message):
    with pytest.raises(ValueError, match=message.format(kind=kind)):
        options_of("sac")(network={"kind": kind, **network})


@both_kinds
def test_widths_are_set_in_one_place(kind):
    with pytest.raises(ValueError, match=r"hidden_sizes is \[4\], but network.hidden_sizes is \[8\]; set one"):
        options_of("sac")(network={"kind": kind, **SMALL}, hidden_sizes=[4])


def test_other_networks_refuse_widths_of_critics():
    with pytest.raises(ValueError, match="critic_hidden_sizes is for simba and simba_v2, not for mlp; leave it out"):
        options_of("sac")(network={"kind": "mlp", "critic_hidden_sizes": [8]})


@pytest.mark.parametrize(("kind", "names"), [
    ("simba", "crossq, mbpo, redq, sac, td3 and tqc"), ("simba_v2", "mbpo, redq, sac, td3 and tqc"),
])  # fmt: skip
def test_other_algorithms_refuse_it(kind, names):
    for name in CATALOGUE.keys() - set(TAKEN_BY["simba"]):
        with pytest.raises(ValueError, match=f"network {kind} is for {names}; leave it out"):
            options_of(name)(network=kind)


def test_crossq_is_sent_to_the_kind_it_takes():
    with pytest.raises(ValueError, match=r"network simba_v2 is for mbpo, .* and tqc; use network simba"):
        options_of("crossq")(network="simba_v2")
