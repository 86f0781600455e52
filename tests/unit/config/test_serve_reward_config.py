"""What the file of a reward server may hold, and the one line on what it may not."""

from pathlib import Path

import pytest

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.load_serve_reward import describe_settings, load_serve_config


def _file(folder: Path, content: str) -> Path:
    path = folder / "server.yaml"
    path.write_text(content)
    return path


def test_defaults_serve_this_machine_alone(tmp_path: Path) -> None:
    config = load_serve_config(_file(tmp_path, "reward: {reward_fn: exact_match}"))
    assert config.reward.kind == "function"
    assert config.server.host == "127.0.0.1"
    assert config.server.metrics_port is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "must be a mapping"),
        ("{}", "reward is missing"),
        ("reward: {", "not valid YAML"),
        ("reward: {}", "reward.reward_fn is missing: reward.kind function needs it"),
        (
            "reward: {reward_fn: f}\nserver: {prt: 1}",
            "unknown setting server.prt: did you mean po",
        ),
        ("reward: {reward_fn: f}\nsrver: {}", "unknown setting srver: did you mean server?"),
        ("reward: {reward_fn: f, zzz: 1}", "unknown setting reward.zzz: there are kind, rew"),
        ("reward: {reward_fn: f}\nserver: {port: x}", "server.port must be a valid integer, got x"),
        ("reward: {reward_fn: f}\nserver: {port: 70000}", "server.port must be less than or equal"),
        ("reward: {reward_fn: f}\nserver: 3", "server must"),
        (
            "reward: {kind: judge, pretrain: m}",
            "reward.template is missing: reward.kind judge",
        ),
        ("reward: {kind: scalar_model}", "reward.pretrain is missing"),
        (
            "reward: {reward_fn: f, pretrain: m}",
            "reward.pretrain does nothing with reward.kind function",
        ),
        ("reward: {kind: oracle}", "reward.kind must be 'function'"),
        ("reward: {reward_fn: f}\nserver: {tls_cert: c}", "server.tls_key belong together"),
        ("reward: {reward_fn: f}\nserver: {tls_client_ca: c}", "does nothing without TLS"),
        (
            "reward: {reward_fn: f}\nserver: {port: 5000, metrics_port: 5000}",
            "server.port and server.metrics_port are both 5000",
        ),
        (
            "reward: {reward_fn: f}\nbatching: {max_queued_samples: 5}",
            "batching.max_queued_samples 5 is less than batching.max_batch_size 64",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, content: str, reason: str) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(UserError) as caught:
        load_serve_config(path)
    message = str(caught.value)
    assert reason in message and str(path) in message and "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the configuration file .*none\.yaml"):
        load_serve_config(tmp_path / "none.yaml")


def test_every_setting_is_explained() -> None:
    text = describe_settings()
    assert max(map(len, text.splitlines())) <= 100
    for line in (
        "server: Where and to whom it is served.",
        "  port int (default: 50051)",
        "  metrics_port int|null (default: null)",
        "      PEM file of the certificate's key.",
    ):
        assert line in text.splitlines(), line
