"""The words of a prompt."""

from lightrft_ray.data.prompts import Prompt


def user_text(prompt: Prompt) -> str:
    """The text of the user's last turn, without markers of images."""
    content = next(
        (message["content"] for message in reversed(prompt.messages) if message["role"] == "user"),
        "",
    )
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
