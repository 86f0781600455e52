"""The load-balancing loss of mixture-of-experts models."""

from typing import cast

from torch import Tensor
from transformers import PretrainedConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from lightrft_ray.config.errors import UserError
from lightrft_ray.models.rows import Rows


def check_routers(config: PretrainedConfig, what: str) -> None:
    """Raise UserError for a model without experts that are balanced by this loss."""
    text = config.get_text_config()
    if not hasattr(text, "router_aux_loss_coef") or _experts(text) is None:
        raise UserError(
            f"algorithm.aux_loss_coef balances experts, and {what} (family "
            f"{config.model_type!r}) has no router with such a loss: set algorithm.aux_loss_coef "
            "to 0, or choose a mixture-of-experts model"
        )


def router_loss(logits: tuple[Tensor, ...], rows: Rows, config: PretrainedConfig) -> Tensor:
    """experts · Σ_e f_e P_e, a scalar (Fedus et al. 2021, 2101.03961, equations 4 to 6).

    f_e is how often a token chose expert e and P_e the router's probability of it, both as means
    over tokens and layers: where all experts are used alike it is the number of experts a token.
    `logits` are those of each layer's router. Every sample counts with all of its tokens, whether
    it shares the prompt with others in its row or not; padding does not count.
    """
    text = config.get_text_config()
    loss = load_balancing_loss_func(
        cast(tuple[Tensor], logits),
        _experts(text),
        text.num_experts_per_tok,
        attention_mask=_samples_of_tokens(rows),
    )
    return cast(Tensor, loss)  # an int only for no logits


def _samples_of_tokens(rows: Rows) -> Tensor:
    """(R, T) float32: the number of samples that a token belongs to; 0 at padding."""
    if isinstance(rows.attention, Tensor):
        return rows.attention.float()
    return rows.attention.samples_of_tokens()[None].float()


def _experts(text: PretrainedConfig) -> int | None:
    names = ("num_experts", "num_local_experts")
    return next((n for name in names if (n := getattr(text, name, None)) is not None), None)
