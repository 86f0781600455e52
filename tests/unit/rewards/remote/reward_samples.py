"""Samples for tests of reward services."""

from collections.abc import Sequence

from lightrft_ray.rewards.sample import EncodedMedia, RewardSample


def image(content: str) -> EncodedMedia:
    """An image of these bytes; nothing decodes it."""
    return EncodedMedia(content.encode(), "image/png")


def sample(
    name: str, response: str = "1", images: Sequence[EncodedMedia] = (), reference: str = "1"
) -> RewardSample:
    """A sample that exact_match gives 1, unless told otherwise."""
    content: list[dict[str, object]] = [{"type": "image"} for _ in images]
    return RewardSample(
        sample_id=name,
        prompt="How many?",
        messages=[{"role": "user", "content": [*content, {"type": "text", "text": "How many?"}]}],
        response=response,
        response_token_ids=[5, 6],
        reference=reference,
        label="count",
        images=tuple(images),
    )


def samples(count: int) -> list[RewardSample]:
    """Samples s0, s1, … of which exact_match gives every other one 1."""
    return [sample(f"s{index}", response=str(index % 2)) for index in range(count)]
