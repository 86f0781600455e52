"""The text of the answer tag is the reference."""

from lightrft_ray.rewards.ready_made.answers import tagged_or_all


def answer_tag(
    response: str, reference: str, *, ignore_case: bool = True, one_line: bool = True
) -> float:
    """1 where the text in ``<answer>…</answer>`` is the reference's, else 0.

    Without a tag the whole text counts; the reference may have a tag too. White space around is
    left out, and case where `ignore_case`. With `one_line`, an answer spread over lines is none.
    """
    given, right = (tagged_or_all(text, one_line=one_line) for text in (response, reference))
    if ignore_case:
        given, right = given.lower(), right.lower()
    return float(given == right)
