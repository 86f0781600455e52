"""How well a box in the response covers the reference's."""

import re

from lightrft_ray.rewards.ready_made.answers import tagged_or_all

_NUMBER = r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+))\s*"
_BOX = re.compile(rf"[\[(]{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}[\])]")

Box = tuple[float, float, float, float]


def box_iou(response: str, reference: str) -> float:
    """Intersection over union of two boxes ``[x1, y1, x2, y2]``, from 0 to 1.

    The response's box is the last in its ``<answer>`` tag, or in all of it without a tag. It is 0
    without a box or for one that is not x1 < x2, y1 < y2. Raises ValueError where the reference has
    no such box.
    """
    right = _last_box(reference)
    if right is None:
        raise ValueError(f"the reference {reference[:100]!r} holds no box [x1, y1, x2, y2]")
    given = _last_box(response)
    return 0.0 if given is None else _overlap(given, right)


def _last_box(text: str) -> Box | None:
    found = _BOX.findall(tagged_or_all(text))
    if not found:
        return None
    x1, y1, x2, y2 = map(float, found[-1])
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    return shared / (_area(one) + _area(other) - shared)


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
