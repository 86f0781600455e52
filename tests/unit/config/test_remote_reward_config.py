"""What the settings of a reward service refuse, and what they say of it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig, read_secret, read_token


def _of(**settings: Any) -> RemoteRewardConfig:
    return RemoteRewardConfig(**settings)


def test_addresses_are_split_and_know_their_protocol() -> None:
    assert _of().addresses == ()
    grpc = _of(remote_rm_url="grpcs://a:1, grpcs://b.example:2")
    assert grpc.addresses == ("grpcs://a:1", "grpcs://b.example:2")
    assert grpc.speaks_grpc and grpc.is_secure
    http = _of(remote_rm_url="http://[::1]:5000/get_reward")
    assert not http.speaks_grpc and not http.is_secure


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"remote_rm_url": "host:50051"}, "'host:50051' is no address"),
        ({"remote_rm_url": "grpc://host"}, "'grpc://host' is no address"),
        ({"remote_rm_url": "grpc://a:1,"}, "'' is no address"),
        ({"remote_rm_url": "grpc://a:1,http://b:2"}, "mixes grpc and http"),
        ({"remote_rm_url": "grpc://a:1,grpc://a:1"}, "has an address twice"),
        ({"remote_cache_size": 5}, "remote_cache_size does nothing without remote_rm_url"),
        ({"remote_rm_url": "http://a", "remote_streaming": True}, "does nothing over HTTP"),
        ({"remote_rm_url": "grpc://a:1", "remote_query_key": "queries"}, "nothing over gRPC"),
        ({"remote_rm_url": "grpc://a:1", "remote_token_file": "t"}, "travel to a unencrypted"),
        ({"remote_rm_url": "grpc://a:1", "remote_token_env": "T"}, "travel to a unencrypted"),
        (
            {"remote_rm_url": "grpcs://a:1", "remote_token_env": "T", "remote_token_file": "t"},
            "both give a token",
        ),
        ({"remote_rm_url": "grpc://a:1", "remote_tls_ca": "ca"}, "does nothing without TLS"),
        ({"remote_rm_url": "grpcs://a:1", "remote_tls_key": "k"}, "belong together"),
        ({"remote_rm_url": "grpc://a:1", "remote_score_range": (1, 0)}, "reversed or empty"),
    ],
)
def test_contradictions_name_the_settings(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match="remote_") as caught:
        _of(**settings)
    assert reason in str(caught.value)


def test_a_token_may_go_unencrypted_within_the_machine() -> None:
    assert _of(remote_rm_url="grpc://localhost:1", remote_token_file="token").addresses


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(" abc\n")
    assert read_secret(str(token), "remote_token_file") == b"abc"
    assert read_secret(None, "remote_token_file") is None
    token.write_text("\n")
    with pytest.raises(UserError, match=r"remote_token_file .*: the file is empty"):
        read_secret(str(token), "remote_token_file")
    with pytest.raises(UserError, match="cannot be read"):
        read_secret(str(tmp_path / "none"), "remote_token_file")


def test_a_token_comes_from_a_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _of(remote_rm_url="grpcs://a:1", remote_token_env="REWARD_TOKEN")
    with pytest.raises(UserError, match="REWARD_TOKEN: the environment variable is not set"):
        read_token(config)
    monkeypatch.setenv("REWARD_TOKEN", "abc")
    assert read_token(config) == b"abc"
    assert "abc" not in str(config.model_dump())
    assert read_token(_of()) is None
