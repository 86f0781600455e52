"""A generative judge: a language model that writes a verdict on a response."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.families import forbidden_token_ids, hugging_face_model, media_inputs
from lightrft_ray.models.generation import generate_sequences
from lightrft_ray.models.judge_prompts import JudgedSample, JudgeTemplate
from lightrft_ray.models.token_models import Sampling
from lightrft_ray.models.verdicts import Verdict, VerdictRule
from lightrft_ray.models.vocabulary import check_vocabulary

_NOT_MEDIA = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")


class GenerativeJudge:
    """Scores samples by what a chat model answers, word for word the same every time (greedy).

    `model` is a loaded Hugging Face model, and `processor` its processor, or its tokenizer if it
    sees no images. `max_new_tokens` is the longest answer, `batch_size` the number of samples that
    are asked about at once. Raises UserError for a model without a chat template.
    """

    def __init__(
        self,
        model: nn.Module,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        template: JudgeTemplate,
        rule: VerdictRule,
        *,
        max_new_tokens: int = 512,
        batch_size: int = 8,
    ) -> None:
        if not processor.chat_template:
            raise UserError("judge: its tokenizer has no chat template; give a chat model")
        self._model = hugging_face_model(model)
        self._greedy = Sampling(0, forbidden_token_ids(self._model.config))
        self._processor = processor
        self._tokenizer = _tokenizer_of(processor)
        check_vocabulary("judge", self._model.config, self._tokenizer)
        self._template = template
        self._rule = rule
        self._max_new_tokens = max_new_tokens
        self._batch_size = batch_size

    def score(self, samples: Sequence[JudgedSample]) -> list[Verdict]:
        """A verdict for each sample, in order; one that the judge did not give is a fault."""
        return [self._rule.parse(answer) for answer in self.answers(samples)]

    def answers(self, samples: Sequence[JudgedSample]) -> list[str]:
        """What the judge says of each sample."""
        answers = [""] * len(samples)
        # Processors take batches in which either all texts have images or none has.
        for sees in (False, True):
            chosen = [i for i, sample in enumerate(samples) if bool(sample.images) is sees]
            for start in range(0, len(chosen), self._batch_size):
                part = chosen[start : start + self._batch_size]
                texts = self._ask([samples[index] for index in part])
                for index, text in zip(part, texts, strict=True):
                    answers[index] = text
        return answers

    def _ask(self, samples: Sequence[JudgedSample]) -> list[str]:
        inputs = self._inputs(samples)
        input_ids: Tensor = inputs["input_ids"]
        media = {name: value for name, value in inputs.items() if name not in _NOT_MEDIA}
        pad = self._tokenizer.pad_token_id
        sequences, _, action_mask = generate_sequences(
            self._model,
            input_ids,
            media_inputs(self._model, media),
            self._greedy,
            attention_mask=inputs["attention_mask"],
            max_new_tokens=self._max_new_tokens,
            pad_token_id=self._tokenizer.eos_token_id if pad is None else pad,
        )
        answers = sequences[:, input_ids.shape[1] :]
        return [
            str(self._tokenizer.decode(answer[mask], skip_special_tokens=True))
            for answer, mask in zip(answers, action_mask, strict=True)
        ]

    def _inputs(self, samples: Sequence[JudgedSample]) -> dict[str, Tensor]:
        """Model inputs on the model's device, left-padded."""
        texts = [self._chat(sample) for sample in samples]
        images = [list(sample.images) for sample in samples]
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        options = {"padding": True, "padding_side": "left", "return_tensors": "pt"}
        if any(images):
            if not isinstance(self._processor, ProcessorMixin):
                raise UserError("judge: a sample has images, and the judge takes text alone")
            inputs = self._processor(text=texts, images=images, add_special_tokens=False, **options)
        else:
            inputs = self._tokenizer(texts, add_special_tokens=False, **options)
        device = self._model.device
        return {name: torch.as_tensor(value).to(device) for name, value in inputs.items()}

    def _chat(self, sample: JudgedSample) -> str:
        question = self._template.render(sample)
        content: str | list[dict[str, str]] = question
        if isinstance(self._processor, ProcessorMixin):
            content = [{"type": "image"} for _ in sample.images]
            content.append({"type": "text", "text": question})
        messages = [{"role": "user", "content": content}]
        text = self._processor.apply_chat_template(
            messages,  # type: ignore[arg-type] # the annotation leaves lists of parts out
            add_generation_prompt=True,
            tokenize=False,
        )
        return str(text)


def _tokenizer_of(processor: ProcessorMixin | PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    if isinstance(processor, PreTrainedTokenizerBase):
        return processor
    tokenizer: PreTrainedTokenizerBase = processor.tokenizer
    return tokenizer
