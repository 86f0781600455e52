"""The processors of the tiny vision-language checkpoints."""

from collections.abc import Callable

from transformers import (
    Gemma3ImageProcessor,
    Gemma3Processor,
    GotOcr2ImageProcessor,
    Idefics3ImageProcessor,
    Idefics3Processor,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    ProcessorMixin,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
)

_IMAGE_SIDE = {"height": 56, "width": 56}


def qwen_processor(
    kind: type[ProcessorMixin], video: type, **sizes: int
) -> Callable[[Qwen2Tokenizer], ProcessorMixin]:
    def make(tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
        limits = {"min_pixels": 28 * 28, "max_pixels": 112 * 112, **sizes}
        return kind(
            image_processor=Qwen2VLImageProcessor(**limits),
            tokenizer=tokenizer,
            video_processor=video(**limits),
            chat_template=tokenizer.chat_template,
        )

    return make


def llava_processor(tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
    side = {"height": 28, "width": 28}
    pinpoints = [[28, 28], [28, 56], [56, 28], [56, 56]]
    return LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=side, image_grid_pinpoints=pinpoints),
        tokenizer=tokenizer,
        video_processor=LlavaOnevisionVideoProcessor(size=side),
        num_image_tokens=4,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
    )


def gemma_processor(tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
    return Gemma3Processor(
        image_processor=Gemma3ImageProcessor(size=_IMAGE_SIDE),
        tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
        image_seq_length=4,
    )


def idefics_processor(tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
    return Idefics3Processor(
        image_processor=Idefics3ImageProcessor(
            size={"longest_edge": 112}, max_image_size={"longest_edge": 56}
        ),
        tokenizer=tokenizer,
        image_seq_len=4,
        chat_template=tokenizer.chat_template,
    )


def internvl_processor(tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
    return InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=_IMAGE_SIDE, crop_to_patches=True),
        tokenizer=tokenizer,
        video_processor=InternVLVideoProcessor(size=_IMAGE_SIDE),
        image_seq_length=4,
        chat_template=tokenizer.chat_template,
    )
