"""Files and overrides: what counts over what, and errors that say what, where and how."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import dump_config, load_config
from lightrft_ray.config.settings import find_setting

WriteFile = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    def write_file(text: str | bytes) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_file


def _message(path: Path | None, *overrides: tuple[str, str]) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_nothing_given_is_the_default() -> None:
    assert load_config(None, []) == RunConfig()


def test_the_command_line_counts_over_the_file_over_the_defaults(write: WriteFile) -> None:
    path = write("seed: 3\nrollout:\n  vllm_gpu_memory_utilization: 0.9\n  temperature: 0.7\n")
    fraction, count = "rollout.vllm_gpu_memory_utilization", "vllm_max_num_seqs"
    config = load_config(path, [(fraction, "0.8"), (count, "5"), (count, "6")])
    assert config.seed == 3
    assert config.rollout.temperature == 0.7
    assert config.rollout.vllm_gpu_memory_utilization == 0.8
    assert config.rollout.vllm_max_num_seqs == 6
    assert config.rollout.generate_max_len == RunConfig().rollout.generate_max_len


def test_leaf_and_dotted_names_are_the_same_setting() -> None:
    dotted = load_config(None, [("rollout.n_samples_per_prompt", "16")])
    assert dotted == load_config(None, [("n_samples_per_prompt", "16")])
    assert dotted.rollout.n_samples_per_prompt == 16


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("actor_learning_rate", "1e-5", 1e-5),
        ("vllm_enforce_eager", "false", False),
        ("adam_betas", "[0.8, 0.9]", (0.8, 0.9)),
        ("eps_clip_high", "0.3", 0.3),
        ("eps_clip_high", "null", None),
        ("image_root", "null", None),
        ("image_root", "2024", "2024"),
        ("pretrain", "null", "null"),
        ("system_prompt", "Answer: a digit, [0-9]", "Answer: a digit, [0-9]"),
        ("progress", "off", "off"),
        ("zero_stage", "3", 3),
        ("advantage_estimator", "grpo", "group_norm"),
    ],
)
def test_texts_of_the_command_line(name: str, text: str, value: object) -> None:
    setting = find_setting(name)
    assert setting is not None
    config = load_config(None, [(name, text)])
    assert getattr(getattr(config, setting.section), name) == value


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("rollout: {n_sample: 4}", ["rollout.n_sample", "n_samples_per_prompt in the section"]),
        ("rollout: {seed: 4}", ["rollout.seed", "seed at the top level"]),
        ("lambd: 0.9", ["unknown setting lambd", "lambd in the section algorithm"]),
        ("algorithm.lambd: 0.9", ["algorithm.lambd", "lambd in the section algorithm"]),
        ("trainer: {temprature: 1}", ["trainer.temprature", "temperature in the section rollout"]),
        ("qqq: 1", ["unknown setting qqq", "--help"]),
        ("rollout: {1: 2}", ["rollout.1"]),
        ("'': {seed: 3}", ["unknown setting"]),
        ("<<: {seed: 3}", ["unknown setting <<"]),
        ("rollout:", ["rollout", "mapping", "null"]),
        ("rollout: 3", ["rollout", "mapping", "got 3"]),
        ("seed: {a: 1}", ["seed", "integer", "{a: 1}"]),
        ("", ["mapping", "null"]),
        ("- a", ["mapping", "[a]"]),
        ("a: [", ["not valid YAML", "line 1"]),
        ("seed: 1\nseed: 2", ["not valid YAML", "line 2", "'seed' comes twice"]),
        (b"a: \xff", ["UTF-8"]),
        (b"a: \x00", ["not valid YAML"]),
        ("algorithm: {lambd: '0.9'}", ["algorithm.lambd", "number", "'0.9'"]),
        ("trainer: {adam_betas: [0.9]}", ["trainer.adam_betas", "[float, float]", "[0.9]"]),
        ("trainer: {adam_betas: [0.9, a]}", ["trainer.adam_betas", "item 2", "number"]),
        ("rollout: {max_staleness: -1}", ["rollout.max_staleness", "greater", "got -1"]),
        ("model: {dtype: fp16}", ["model.dtype", "'float32' or 'bfloat16'", "fp16"]),
        ("trainer: {zero_stage: true}", ["trainer.zero_stage", "must be an integer, got true"]),
        ("trainer: {row_layout: ragged}", ["trainer.row_layout", "'packed' or 'padded'"]),
        (f"seed: {'x' * 500}", ["seed", "xxx..."]),
    ],
)
def test_mistakes_in_a_file(write: WriteFile, text: str | bytes, parts: list[str]) -> None:
    path = write(text)
    message = _message(path)
    for part in [str(path), *parts]:
        assert part in message
    assert len(message) < 300 + len(str(path))


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert "no.yaml: No such file" in _message(tmp_path / "no.yaml")
    assert "Is a directory" in _message(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("n-samples-per-prompt", "4", ["did you mean --rollout.n_samples_per_prompt?"]),
        ("N_samples_per_prompt", "4", ["did you mean --rollout.n_samples_per_prompt?"]),
        ("trainer.lambd", "1", ["did you mean --algorithm.lambd?"]),
        ("sede", "4", ["did you mean --seed?"]),
        ("rollout", "4", ["it is a section", "--rollout.SETTING"]),
        ("xyzzy", "4", ["--help"]),
        ("n_samples_per_prompt", "four", ["rollout.n_samples_per_prompt", "integer", "four"]),
        ("adam_betas", "[0.9", ["trainer.adam_betas", "[float, float]", "'[0.9'"]),
        ("seed", "null", ["seed", "integer", "null"]),
    ],
)
def test_mistakes_on_the_command_line(name: str, text: str, parts: list[str]) -> None:
    for part in ["on the command line", *parts]:
        assert part in _message(None, (name, text))


def test_an_error_names_the_place_that_the_value_comes_from(write: WriteFile) -> None:
    path = write("rollout: {vllm_max_num_seqs: 0, temperature: 0}")
    overrides = [("temperature", "1")]
    assert f"rollout.vllm_max_num_seqs in {path}" in _message(path, *overrides)
    overrides.append(("vllm_max_num_seqs", "-4"))
    assert "rollout.vllm_max_num_seqs on the command line" in _message(path, *overrides)


@pytest.mark.parametrize("leaf", ["top_p", "top_k"])
def test_truncated_sampling_is_refused_with_its_reason(write: WriteFile, leaf: str) -> None:
    reason = (
        f"rollout.{leaf}: truncated sampling is not supported: the learner could not score the "
        "distribution that was sampled; use temperature"
    )
    for text in (f"rollout: {{{leaf}: 1}}", f"{leaf}: 1", f"evaluation: {{{leaf}: 1}}"):
        assert _message(write(text)) == reason
    for name in (leaf, f"rollout.{leaf}", leaf.replace("_", "-")):
        assert _message(None, (name, "1")) == reason


def test_the_kl_has_one_place(write: WriteFile) -> None:
    for path in (write("algorithm: {use_kl_in_reward: true, use_kl_loss: true}"), None):
        message = _message(path, *([] if path else [("use_kl_in_reward", "true")]))
        assert message.startswith("algorithm.use_kl_in_reward: the KL is in the loss or in the")
        assert "algorithm.use_kl_loss to false for the reward" in message


def test_a_contradiction_is_told_as_it_is() -> None:
    message = _message(None, ("gamma", "0.9"))
    assert message.startswith("algorithm.gamma does nothing")


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        [("output_dir", "1e5"), ("system_prompt", "off"), ("progress", "off")],
        [("system_prompt", " two\nlines: é # 😀 "), ("actor_learning_rate", "1e-22")],
        [("advantage_estimator", "gae"), ("gamma", "0.99"), ("critic_pretrain", "a/b")],
        [("adam_betas", "[0.5, 0.25]"), ("eval_data", "x.jsonl"), ("max_samples", "10")],
    ],
)
def test_a_dump_loads_to_the_same_configuration(
    write: WriteFile, overrides: list[tuple[str, str]]
) -> None:
    config = load_config(None, overrides)
    assert load_config(write(dump_config(config)), []) == config
