"""FIRE in a vLLM engine: the first token of a response is drawn hot, all others as usual.

Flaming-hot Initiation with Regular Execution, 2410.21236. vLLM takes no temperature above 2, nor
one that changes within a response: this logits processor, which the engine loads by its name, gives
both in the one request that samples all responses of a prompt.

Each token keeps the log-prob of the distribution that it was drawn from, the hot one for a first
token. The learner scores every token under the regular one, which is the policy that is trained, so
that the ratio of the two is the first token's exact importance weight. An off-policy correction of
tokens applies it to that token alone: the others learn from the hot starts as they are. What lies
beyond the top k is never drawn there, and so has no part in the gradient of a first token.
"""

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.logits_process import LogitsProcessor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from lightrft_ray.workers.messages import FirstToken

_KEY = "hot_first_token"


def hot_first_token(first: FirstToken, temperature: float) -> dict[str, tuple[float, int]]:
    """`extra_args` of the sampling parameters of requests that sample at `temperature`."""
    return {_KEY: (temperature / first.temperature, first.top_k)}


class HotFirstToken(AdapterLogitsProcessor):
    """Heats a request's logits, which were divided by its temperature, while it has no token."""

    def is_argmax_invariant(self) -> bool:
        """vLLM then applies it to random sampling alone, after the temperature."""
        return True

    def new_req_logits_processor(self, params: SamplingParams) -> LogitsProcessor | None:
        """What is applied to the logits (V,) of one request, None for nothing."""
        given = (params.extra_args or {}).get(_KEY)
        if given is None:
            return None
        factor, top_k = given

        def heat(output_ids: list[int], logits: Tensor) -> Tensor:
            return logits if output_ids else heated(logits, factor, top_k)

        return heat


def heated(logits: Tensor, factor: float, top_k: int) -> Tensor:
    """`logits` (V,) times `factor`, −inf where they are not among the `top_k` largest."""
    scaled = logits * factor
    least = scaled.topk(min(top_k, len(scaled))).values[-1]
    return scaled.masked_fill(scaled < least, -torch.inf)
