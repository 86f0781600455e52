"""Whose pixels are whose: the golden vectors, both styles of images, and what is shared."""

from typing import Any

import pytest
import torch
from golden_cases import Case, load, run
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightrft_ray.trainer.batch_media import (
    batch_fields,
    media_of,
    media_of_experience,
    model_inputs,
)
from lightrft_ray.trainer.experience_types import ExperienceVL, SamplesVL
from lightrft_ray.trainer.media import (
    Medium,
    SampleMedia,
    cut_medium,
    held_bytes,
    join_media,
    media_ranges,
    shared_with,
)


def _numbered(grids: Tensor) -> Tensor:
    """Rows of pixels that hold their own number."""
    return torch.arange(int(grids.prod(dim=1).sum()))[:, None]


def _slice(case: Case) -> dict[str, Any]:
    merge, selection = case.param("spatial_merge_size"), case.raw_input("selection")
    result: dict[str, Any] = {}
    for name, prefix in (("image", ""), ("video", "video_")):
        counts = case.raw_input(f"{name}s_per_sample")
        grids = torch.tensor(case.raw_input(f"{name}_grid_thw"), dtype=torch.long).view(-1, 3)
        pixels = _numbered(grids)
        ranges = media_ranges(counts, grids, len(pixels), name=name)
        parts = cut_medium(Medium(0, pixels, grids), counts, name=name)
        joined = join_media(parts[index] for index in selection)
        rows = [] if joined.pixels is None else joined.pixels[:, 0].tolist()
        result |= {
            f"{prefix}pixel_rows": ranges.pixels,
            f"{name}_grid_rows": ranges.media,
            f"{name}_tokens_per_sample": ranges.token_counts(merge),
            f"total_{prefix}pixel_rows": len(pixels),
            f"selected_{prefix or 'pixel_'}rows": rows,
        }
        if name == "image":
            result["selected_grids"] = [] if joined.grids is None else joined.grids.tolist()
    return result


def _invalid(case: Case) -> dict[str, Any]:
    case.param("spatial_merge_size")
    grids = case.integers("image_grid_thw")
    media_ranges(case.raw_input("images_per_sample"), grids, case.raw_input("pixel_rows"))
    return {}


@pytest.mark.parametrize("case", load("mm_slicing"), ids=str)
def test_golden_slicing(case: Case) -> None:
    run(case, torch.float32, {"slice": _slice, "invalid": _invalid})


_COUNTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5)


def _random_samples(counts: list[tuple[int, int]], with_grids: bool) -> SamplesVL:
    image_num, video_num = ([pair[i] for pair in counts] for i in (0, 1))

    def grids(number: int) -> Tensor:
        return torch.randint(1, 4, (number, 3))

    if with_grids:
        images, videos = grids(sum(image_num)), grids(sum(video_num))
        pixels = _numbered(images), _numbered(videos)
    else:
        images, videos = None, None
        pixels = (torch.randn(sum(image_num), 3, 2, 2), torch.randn(sum(video_num), 3, 2, 2))
    return SamplesVL(
        torch.zeros(len(counts), 1),
        pixel_values=pixels[0],
        image_grid_thws=images,
        image_num=image_num,
        pixel_values_videos=pixels[1],
        video_grid_thws=videos,
        video_num=video_num,
    )


@settings(deadline=None, max_examples=50)
@given(_COUNTS, st.booleans())
def test_cutting_and_joining_loses_nothing(counts: list[tuple[int, int]], with_grids: bool) -> None:
    samples = _random_samples(counts, with_grids)
    parts = media_of(samples, len(counts))
    assert [(part.images.count, part.videos.count) for part in parts] == counts
    for name, joined in batch_fields(parts).items():
        original = getattr(samples, name)
        if joined is None:
            assert original is None or len(original) == 0
        else:
            assert torch.equal(joined, original)


def test_samples_of_a_prompt_share_its_pixels() -> None:
    pixels = torch.randn(16, 4)
    prompt = SampleMedia(Medium(1, pixels, torch.tensor([[1, 4, 4]])))
    samples = [prompt] * 8
    assert held_bytes(samples) == pixels.nbytes
    joined = batch_fields(samples)["pixel_values"]
    assert joined is not None
    assert torch.equal(joined, pixels.repeat(8, 1))
    assert batch_fields(samples[:1])["pixel_values"] is pixels


def test_cutting_gives_views() -> None:
    samples = _random_samples([(2, 0), (1, 1)], with_grids=True)
    parts = media_of(samples, 2)
    assert samples.pixel_values is not None
    assert samples.pixel_values_videos is not None
    both = samples.pixel_values.nbytes + samples.pixel_values_videos.nbytes
    assert held_bytes(parts) == both


def test_equal_neighbours_share_one_tensor() -> None:
    grid = torch.tensor([[1, 2, 2]])
    first = SampleMedia(Medium(1, torch.ones(4, 2), grid))
    same = SampleMedia(Medium(1, torch.ones(4, 2), grid.clone()))
    other = SampleMedia(Medium(1, torch.zeros(4, 2), grid))
    turned = SampleMedia(Medium(1, torch.ones(4, 2), torch.tensor([[1, 4, 1]])))
    plain = SampleMedia(Medium(1, torch.ones(4, 2)))
    assert shared_with(None, first) is first
    assert shared_with(first, same).images is first.images
    for different in (other, turned, plain, SampleMedia()):
        assert shared_with(first, different).images is different.images
    assert shared_with(plain, SampleMedia(Medium(1, torch.ones(4, 2)))).images is plain.images


def test_counts_of_zero_and_two_are_cut_so_and_not_as_one_and_one() -> None:
    grids = torch.tensor([[1, 2, 2], [1, 2, 4]])
    experience = ExperienceVL(
        torch.zeros(2, 1),
        pixel_values=_numbered(grids),
        image_grid_thws=grids,
        info={"image_num": [0, 2]},
    )
    first, second = media_of_experience(experience)
    assert (first.images.count, second.images.count) == (0, 2)
    assert second.images.pixels is not None
    assert len(second.images.pixels) == 12


def test_media_without_counts_are_an_error() -> None:
    grids = torch.tensor([[1, 2, 2]])
    samples = SamplesVL(torch.zeros(1, 1), pixel_values=_numbered(grids), image_grid_thws=grids)
    with pytest.raises(ValueError, match=r"image_num: .* counts 0 rows, image_grid_thws has 1"):
        media_of(samples, 1)


@pytest.mark.parametrize(
    ("counts", "grids", "rows", "message"),
    [
        ([1, 2], [[1, 2, 2]], 4, "image_num: up to sample 1 of prompt b it counts 3 .* has 1"),
        ([1, 0], [[1, 2, 2]] * 2, 8, "image_num: up to sample 1 of prompt b it counts 1 .* has 2"),
        ([1, 0], [[1, 2, 2]], 3, "image_grid_thws: up to sample 0 of prompt a it counts 4 .* 3"),
        ([1, 1], None, 3, "image_num: up to sample 1 of prompt b it counts 2 .* pixel_values has"),
    ],
)
def test_counts_that_do_not_fit_name_the_prompt_and_both_numbers(
    counts: list[int], grids: list[list[int]] | None, rows: int, message: str
) -> None:
    given = None if grids is None else torch.tensor(grids)
    with pytest.raises(ValueError, match=message):
        media_ranges(counts, given, rows, prompts=["a", "b"])


def test_media_of_both_styles_cannot_share_a_batch() -> None:
    with pytest.raises(ValueError, match="media with and media without"):
        join_media([Medium(1, torch.ones(1, 2)), Medium(1, torch.ones(1, 2), torch.ones(1, 3))])


def test_tiles_are_padded_and_frames_are_not() -> None:
    two, three = torch.ones(1, 2, 3, 4, 4), torch.ones(1, 3, 3, 4, 4)
    joined = join_media([Medium(1, two), Medium(1, three)]).pixels
    assert joined is not None
    assert joined[:, :, 0, 0, 0].tolist() == [[1, 1, 0], [1, 1, 1]]
    first, second = cut_medium(Medium(0, joined), [1, 1], per_sample=True)
    assert first.pixels is not None and second.pixels is not None
    assert torch.equal(first.pixels, two)
    assert torch.equal(second.pixels, three)
    assert first.pixels.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    with pytest.raises(
        ValueError, match=r"pixel_values_videos: \(1, 2, .* and \(1, 3, .* share a batch"
    ):
        join_media([Medium(1, two), Medium(1, three)], name="video")


def test_samples_without_images_may_have_an_empty_entry() -> None:
    """Idefics 3 style: an entry a sample, whatever its number of images."""
    pixels = torch.zeros(3, 2, 3, 4, 4)
    pixels[1], pixels[2, 0] = 1, 1
    cut = cut_medium(Medium(0, pixels), [0, 2, 1], per_sample=True)
    assert [None if one.pixels is None else one.pixels.shape[1] for one in cut] == [None, 2, 1]
    with pytest.raises(ValueError, match=r"image_num: .* counts 2 rows, pixel_values has 4"):
        cut_medium(Medium(0, torch.ones(4, 1, 3, 4, 4)), [0, 2, 1], per_sample=True)


def test_models_get_what_a_batch_has() -> None:
    samples = SamplesVL(
        torch.zeros(1, 1), pixel_values=torch.ones(1), video_grid_thws=torch.ones(1)
    )
    assert set(model_inputs(samples)) == {"pixel_values", "video_grid_thw"}
