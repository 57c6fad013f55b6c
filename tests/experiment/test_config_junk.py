"""Whatever is given for a config is refused in words, or is one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.experiment.config.train_config import ConfigError, TrainConfig, parse_config

keys = st.sampled_from([*TrainConfig.model_fields, "expectile", "hidden_sizes", "kind", "rows", "patience"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.builds(pow, st.just(10), st.just(5000))
)
junk = st.recursive(
    scalars | st.sampled_from(["iql", "ppo", "random", "cpu"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys | st.text() | st.integers(), inner, max_size=5)
        | st.fixed_dictionaries(
            {"algo": st.sampled_from(["iql", "dqn"])}, optional={"algo_kwargs": inner, "seed": inner}
        )
    ),
    max_leaves=20,
)


def words_about(values: object) -> str:
    try:
        parse_config(values)
    except ConfigError as error:
        return str(error)
    return ""


@settings(max_examples=400)
@given(values=junk)
def test_junk_is_refused_in_words_or_is_a_config(values):
    assert words_about(values).replace("\n", "").isprintable()


@given(position=st.integers(0, 14), letter=st.sampled_from("abcxyz_"))
def test_a_key_within_two_letters_is_always_recognised(position, letter):
    word = "total_timesteps"
    wrong = word[:position] + letter + letter + word[position:]
    assert "did you mean total_timesteps?" in words_about({"algo": "iql", wrong: 1})


def test_junk_too_deep_for_the_stack_is_refused():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "env_kwargs.a.0" in words_about({"algo": "iql", "env_kwargs": {"a": deep}})
