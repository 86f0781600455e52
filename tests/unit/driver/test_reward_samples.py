"""What rewards see of prompts and responses."""

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rollouts import rollout_group, sample

from lightrft_ray.rewards.sample import EncodedMedia, RewardSample, SampleScore
from lightrft_ray.workers.messages import GroupResponses
from lightrft_ray.workers.reward_samples import reward_samples


def _groups(folder: Path, images: int = 0) -> list[GroupResponses]:
    groups = [
        rollout_group("a", [1], [sample([1]), sample([2])], images),
        rollout_group("b", [2], [sample([3, 4])], images),
    ]
    return [
        replace(each.responses, prompt=replace(each.task.prompt, image_root=folder))
        for each in groups
    ]


def _seen(groups: list[GroupResponses], *, with_media: bool) -> list[RewardSample]:
    entries = reward_samples(groups, None, with_media=with_media)
    return [each for each in entries if isinstance(each, RewardSample)]


def test_each_response_comes_with_its_own_prompt(tmp_path: Path) -> None:
    """The prompt is the user's text alone: a format rule must not match a system prompt."""
    seen = _seen(_groups(tmp_path), with_media=False)
    assert [each.sample_id for each in seen] == ["a/2/0", "a/2/1", "b/2/0"]
    assert [each.prompt for each in seen] == ["text of a", "text of a", "text of b"]
    assert [each.response for each in seen] == ["text of [1]", "text of [2]", "text of [3, 4]"]
    assert [each.response_token_ids for each in seen] == [[1], [2], [3, 4]]
    assert [each.reference for each in seen] == ["reference of a"] * 2 + ["reference of b"]
    assert [each.label for each in seen] == ["label of a"] * 2 + ["label of b"]
    assert [message["role"] for message in seen[0].messages] == ["system", "user"]


def test_a_runs_system_prompt_leads_where_the_data_have_none(tmp_path: Path) -> None:
    group = _groups(tmp_path)[0]
    bare = replace(group, prompt=replace(group.prompt, messages=group.prompt.messages[1:]))
    (own, *_), (added, *_) = (
        reward_samples([g], "be brief", with_media=False) for g in (group, bare)
    )
    assert isinstance(own, RewardSample) and isinstance(added, RewardSample)
    assert own.messages[0]["content"] == "the system prompt"
    assert added.messages[0] == {"role": "system", "content": "be brief"}


def test_images_are_the_files_as_they_are_and_only_where_wanted(tmp_path: Path) -> None:
    groups = _groups(tmp_path, images=1)
    for name, kind in (("a-0.png", "PNG"), ("b-0.png", "JPEG")):  # the content counts
        Image.new("RGB", (4, 4), "red").save(tmp_path / name, format=kind)
    seen = _seen(groups, with_media=True)
    assert [each.images[0].media_type for each in seen] == ["image/png"] * 2 + ["image/jpeg"]
    assert seen[2].images[0].data == (tmp_path / "b-0.png").read_bytes()
    assert seen[0].images is seen[1].images
    assert all(each.images == () for each in _seen(groups, with_media=False))


@pytest.mark.parametrize(
    ("begin", "media_type"),
    [
        (b"\0\0\0\x20ftypisom", "video/mp4"),
        (b"\0\0\0\x14ftypqt  ", "video/quicktime"),
        (b"\x1a\x45\xdf\xa3\x9fB\x82\x84webm", "video/webm"),
        (b"\x1a\x45\xdf\xa3\x9fB\x82\x88matroska", "video/x-matroska"),
        (b"RIFF\0\0\0\0AVI LIST", "video/x-msvideo"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"RIFF\0\0\0\0WEBPVP8X", "image/webp"),
        (b"something else", "application/octet-stream"),
    ],
)
def test_videos_are_the_files_as_they_are(tmp_path: Path, begin: bytes, media_type: str) -> None:
    (tmp_path / "clip").write_bytes(begin + b" and more")
    (group, _) = _groups(tmp_path)
    group = replace(group, prompt=replace(group.prompt, videos=("clip",)))
    for each in _seen([group], with_media=True):
        assert each.videos == (EncodedMedia(begin + b" and more", media_type),)
    assert all(each.videos == () for each in _seen([group], with_media=False))


def test_a_missing_video_fails_its_own_samples(tmp_path: Path) -> None:
    group, other = _groups(tmp_path)
    group = replace(group, prompt=replace(group.prompt, videos=("clip.mp4",)))
    entries = reward_samples([group, other], None, with_media=True)
    faults = [each for each in entries if isinstance(each, SampleScore)]
    assert [each.sample_id for each in faults] == ["a/2/0", "a/2/1"]
    assert str(faults[0].error).startswith("video clip.mp4: does not exist")


def test_an_unreadable_image_fails_its_own_samples(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "b-0.png")
    entries = reward_samples(_groups(tmp_path, images=1), None, with_media=True)
    faults = [each for each in entries if isinstance(each, SampleScore)]
    assert [each.sample_id for each in faults] == ["a/2/0", "a/2/1"]
    assert "a-0.png" in str(faults[0].error)
    assert isinstance(entries[2], RewardSample)
    (tmp_path / "a-0.png").write_text("no image")
    entries = reward_samples(_groups(tmp_path, images=1), None, with_media=True)
    assert isinstance(entries[0], SampleScore) and "damaged" in str(entries[0].error)
