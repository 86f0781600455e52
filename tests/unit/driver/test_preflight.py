"""What is found wrong before a model is loaded or a process started."""

import json
from pathlib import Path

import pytest
from tiny_models import text_model
from tokenizers import Tokenizer, models
from transformers import GPT2Config, PreTrainedTokenizerFast

from lightrft_ray.config import RunConfig, UserError
from lightrft_ray.config.load import load_config
from lightrft_ray.data.embedded import resolve_embedded
from lightrft_ray.driver.preflight import check_inputs, resolve_checkpoints
from lightrft_ray.driver.rollout import prompt_source


def _config(**settings: object) -> RunConfig:
    return load_config(None, [(name, str(value)) for name, value in settings.items()])


def _check(**settings: object) -> None:
    check_inputs(resolve_checkpoints(_config(**settings)))


def _data(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_embedded_default_is_ready() -> None:
    inputs = check_inputs(resolve_checkpoints(_config(eval_max_samples=10)))
    assert len(inputs.train_prompts) == 1400
    assert len(inputs.eval_prompts) == 10
    assert inputs.max_images == 1
    assert inputs.bad_rows == 0
    assert inputs.stop_token_id not in inputs.sampling.forbidden_token_ids
    assert len(inputs.sampling.forbidden_token_ids) == 4


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"pretrain": "/nowhere/model"}, ["model.pretrain /nowhere/model", "config.json"]),
        ({"pretrain": "embedded:large"}, ["embedded:large", "embedded:tiny-qwen2.5-vl"]),
        (
            {"ref_pretrain": "/nowhere/ref", "init_kl_coef": 0.1},
            ["model.ref_pretrain /nowhere/ref"],
        ),
        (
            {"critic_pretrain": "/nowhere/critic", "advantage_estimator": "gae"},
            ["model.critic_pretrain /nowhere/critic"],
        ),
        ({"prompt_data": "/nowhere/data.jsonl"}, ["/nowhere/data.jsonl", "no such file"]),
        ({"eval_data": "/nowhere/eval.jsonl"}, ["/nowhere/eval.jsonl", "no such file"]),
        ({"pretrain_data": "/nowhere/taught.jsonl"}, ["/nowhere/taught.jsonl", "no such file"]),
        ({"aux_loss_coef": 0.01}, ["algorithm.aux_loss_coef", "model.pretrain", "no router"]),
        ({"reward_fn": "exactmatch"}, ["reward.reward_fn exactmatch", "exact_match"]),
        ({"reward_fn": "/nowhere/reward.py"}, ["/nowhere/reward.py", "no such file"]),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_what_is_not_there_is_named(settings: dict[str, object], named: list[str]) -> None:
    with pytest.raises(UserError) as error:
        _check(**settings)
    message = str(error.value)
    assert "\n" not in message
    for words in named:
        assert words in message


def test_an_empty_data_set(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match=r"empty\.jsonl: the file is empty"):
        _check(prompt_data=tmp_path / "empty.jsonl")


def test_more_bad_rows_than_allowed(tmp_path: Path) -> None:
    path = _data(tmp_path / "rows.jsonl", {"prompt": "a", "reference": "b"}, {"prompt": 3})
    with pytest.raises(UserError, match=r"1 of 2 rows are bad.*data\.max_bad_fraction.*line 2"):
        _check(prompt_data=path)


def test_bad_rows_within_the_limit_are_counted(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {i}", "reference": "b"} for i in range(9)]
    path = _data(tmp_path / "rows.jsonl", *rows, {"prompt": 3})
    config = _config(prompt_data=path, max_bad_fraction=0.1)
    inputs = check_inputs(resolve_checkpoints(config))
    assert (len(inputs.train_prompts), inputs.bad_rows) == (9, 1)
    assert inputs.notes == (
        f"data: {path}: 9 prompts, layout lightrft, 1 bad rows left out (line 10: the prompt is "
        "neither a text nor a list of chat messages)",
    )
    assert inputs.eval_prompts == ()


def test_embedded_data_may_be_one_of_several_sources(tmp_path: Path) -> None:
    path = _data(tmp_path / "rows.jsonl", {"prompt": "one?", "reference": "1"})
    config = _config(prompt_data=f"embedded:digits,{path}", prompt_data_probs="3,1")
    inputs = check_inputs(resolve_checkpoints(config))
    assert inputs.train_prompts.parts == [range(1400), range(1400, 1401)]
    assert len(inputs.eval_prompts) == 397
    assert inputs.max_images == 1
    taken = prompt_source(config, inputs.train_prompts).take(8)
    assert [prompt.messages[0]["content"] for prompt, _ in taken].count("one?") == 2


def test_demonstrations_are_read_with_the_prompts(tmp_path: Path) -> None:
    rows = [{"prompt": f"question {i}", "response": str(i)} for i in range(19)]
    seen = {"prompt": "which?", "images": ["a.png", "b.png"], "response": "2"}
    path = _data(tmp_path / "taught.jsonl", *rows, seen, {"prompt": "too long?", "response": 10**9})
    config = _config(pretrain_data=path, eval_max_samples=1)
    inputs = check_inputs(resolve_checkpoints(config))
    assert (len(inputs.demonstrations), inputs.bad_rows) == (20, 1)
    assert inputs.max_images == 2
    for demonstration in inputs.demonstrations:
        assert demonstration.response_ids[-1] == inputs.stop_token_id


def test_images_for_a_model_that_takes_text_alone(tmp_path: Path) -> None:
    text_model().save_pretrained(tmp_path / "text")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[])), eos_token="b"
    )
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(tmp_path / "text")
    with pytest.raises(UserError, match="takes text alone, and prompt digits-train-"):
        _check(pretrain=tmp_path / "text")


def test_a_checkpoint_without_processor(tmp_path: Path) -> None:
    source = resolve_embedded("embedded:tiny-qwen2.5-vl")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(source / name)
    with pytest.raises(UserError, match="no processor or tokenizer could be loaded"):
        _check(pretrain=tmp_path)


def _with_critic(folder: Path, critic: Path, prompt_data: Path | str) -> None:
    _check(
        pretrain=folder,
        critic_pretrain=critic,
        advantage_estimator="gae",
        prompt_data=prompt_data,
    )


def test_images_for_a_critic_that_cannot_see(tmp_path: Path) -> None:
    text_model().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"model\.critic_pretrain .* takes text alone"):
        _with_critic(resolve_embedded("embedded:tiny-qwen2.5-vl"), tmp_path, "embedded:digits")


def test_a_vision_model_with_a_tokenizer_alone(tmp_path: Path) -> None:
    source = resolve_embedded("embedded:tiny-qwen2.5-vl")
    for file in source.iterdir():
        if "processor" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    with pytest.raises(UserError, match=r"to see images, processor_config\.json"):
        _check(pretrain=tmp_path)


def test_a_vocabulary_that_the_models_have_not(tmp_path: Path) -> None:
    """The critic has 64 rows, and the policy's tokenizer 256 bytes and its special tokens."""
    text_model().save_pretrained(tmp_path / "critic")
    data = _data(tmp_path / "rows.jsonl", {"prompt": "a", "reference": "b"})
    message = r"model\.critic_pretrain .* '<\|im_start\|>' the id 258, .* up to 63; .* 259 or more"
    with pytest.raises(UserError, match=message):
        _with_critic(resolve_embedded("embedded:tiny-qwen2.5-vl"), tmp_path / "critic", data)


def test_a_frozen_pattern_that_matches_nothing() -> None:
    with pytest.raises(UserError, match=r"nearest is model\.visual\.\*"):
        _check(freeze_patterns="[model.visuals.*]")
    _check(freeze_patterns="[model.visual.*]", freeze_embeddings=True)


def test_a_family_that_cannot_share_prompts_says_so(tmp_path: Path) -> None:
    GPT2Config().save_pretrained(tmp_path / "gpt2")
    data = _data(tmp_path / "prompts.jsonl", {"prompt": "1 + 1"})
    with pytest.raises(UserError, match="row_layout: models of the family 'gpt2'"):
        _check(pretrain=tmp_path / "gpt2", prompt_data=data)
