"""Rewards by a model with a scalar head, from samples as all rewards get them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import ProcessorMixin

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.processing import Processor, load_processor, tokenizer_of
from lightrft_ray.models.reward_scalar import ScalarRewardModel
from lightrft_ray.rewards.model_scoring import images_of, score_in_batches
from lightrft_ray.rewards.sample import RewardSample, SampleScore, failed

_NOT_MEDIA = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


class ScalarReward:
    """Scores whole chats: the prompt's messages and the response as the assistant's turn.

    They are rendered by the reward model's own chat template, whatever the policy's is.
    `batch_size` is the number of samples of one forward pass; without `show_images` the model gets
    the text alone. Raises UserError for a tokenizer without a chat template.
    """

    def __init__(
        self,
        model: ScalarRewardModel,
        processor: Processor,
        *,
        batch_size: int,
        show_images: bool = True,
    ) -> None:
        if not processor.chat_template:
            raise UserError("reward model: its tokenizer has no chat template")
        self._model = model.eval()
        self._processor = processor
        self._tokenizer = tokenizer_of(processor)
        self._batch_size = batch_size
        self._show_images = show_images

    @staticmethod
    def load(
        path: str, *, bf16: bool, device: str, batch_size: int, show_images: bool = True
    ) -> "ScalarReward":
        """From a Hugging Face name or folder. Raises UserError that says what is wrong with it."""
        model = ScalarRewardModel(path, bf16=bf16).to(device)
        processor = load_processor(path)
        return ScalarReward(model, processor, batch_size=batch_size, show_images=show_images)

    def score(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        """Scores in the order of the samples; a sample that the model cannot take fails alone."""
        return score_in_batches(samples, self._batch_size, self._score_batch)

    def _score_batch(self, samples: Sequence[RewardSample]) -> list[SampleScore]:
        inputs = self._inputs(samples)
        media = {name: value for name, value in inputs.items() if name not in _NOT_MEDIA}
        with torch.inference_mode():
            rewards = self._model(inputs["input_ids"], inputs["attention_mask"], **media)
        return [
            SampleScore(sample.sample_id, reward)
            if torch.isfinite(torch.tensor(reward))
            else failed(sample.sample_id, f"the reward model gave {reward}")
            for sample, reward in zip(samples, rewards.tolist(), strict=True)
        ]

    def _inputs(self, samples: Sequence[RewardSample]) -> Mapping[str, Tensor]:
        """Model inputs on the model's device, padded on the right."""
        texts = [self._chat(sample) for sample in samples]
        images = [images_of(sample) if self._show_images else [] for sample in samples]
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        options = {"padding": True, "padding_side": "right", "return_tensors": "pt"}
        if not any(images):
            inputs = self._tokenizer(texts, add_special_tokens=False, **options)
        elif isinstance(self._processor, ProcessorMixin):
            inputs = self._processor(text=texts, images=images, add_special_tokens=False, **options)
        else:
            raise UserError("the reward model takes text alone, and the sample has images")
        device = next(self._model.parameters()).device
        return {name: torch.as_tensor(value).to(device) for name, value in inputs.items()}

    def _chat(self, sample: RewardSample) -> str:
        messages = [*sample.messages, {"role": "assistant", "content": sample.response}]
        sees = self._show_images and isinstance(self._processor, ProcessorMixin)
        chat = [{**each, "content": _content(each["content"], sees)} for each in messages]
        text = self._processor.apply_chat_template(
            chat,  # type: ignore[arg-type] # the annotation leaves lists of parts out
            tokenize=False,
        )
        return str(text)


def _content(content: object, sees_images: bool) -> object:
    """Content as the template wants it: parts for a model that sees, else one text."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return [{"type": "text", "text": content}] if sees_images else content
    return content if sees_images else "".join(part.get("text", "") for part in content)
