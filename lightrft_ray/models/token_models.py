"""Policy and critic over rows: what every worker runs a micro-batch through."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from lightrft_ray.models.families import hugging_face_model, media_inputs, token_type_inputs
from lightrft_ray.models.output_heads import head_log_probs, logit_rule, output_head
from lightrft_ray.models.routers import router_loss
from lightrft_ray.models.row_inputs import (
    attention_inputs,
    check_attention_ran,
    use_row_attention,
)
from lightrft_ray.models.rows import Rows
from lightrft_ray.models.value_head import new_value_head


@dataclass(frozen=True)
class Sampling:
    """The sampled distribution: temperature, and ids that can never be sampled."""

    temperature: float = 1.0
    forbidden_token_ids: Sequence[int] = ()


class TokenPolicy(nn.Module):
    """Log-probs of the actions of rows, under a Hugging Face language model."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._logit_rule = logit_rule(model.config)
        use_row_attention(model)

    def forward(
        self,
        rows: Rows,
        sampling: Sampling,
        *,
        trains_entropy: bool = False,
        with_router_loss: bool = False,
    ) -> tuple[Tensor, ...]:
        """Log-probs (N, A) float32 of the actions and entropies (N, A).

        Both are 0 behind a response's end. Logits exist for a chunk of the actions at a time.
        Entropies have a gradient only with `trains_entropy`. The third tensor `with_router_loss` is
        that of `routers.router_loss`.
        """
        wanted = {"output_router_logits": True} if with_router_loss else {}
        backbone = hugging_face_model(self.model.base_model)
        hidden, output = _action_hidden_states(backbone, rows, self.model.dtype, **wanted)
        log_probs, entropy = head_log_probs(
            output_head(self.model),
            hidden,
            rows.action_ids[rows.action_mask],
            temperature=sampling.temperature,
            forbidden=sampling.forbidden_token_ids,
            rule=self._logit_rule,
            trains_entropy=trains_entropy,
        )
        per_action = _to_actions(log_probs, rows), _to_actions(entropy, rows)
        if not with_router_loss:
            return per_action
        return *per_action, router_loss(output["router_logits"], rows, self.model.config)


class TokenCritic(nn.Module):
    """Values of the states that a response's actions are taken in; sees the prompt's images."""

    def __init__(self, backbone: PreTrainedModel, seed: int) -> None:
        super().__init__()
        self.backbone = backbone
        use_row_attention(backbone)
        self.value_head = new_value_head(backbone, torch.Generator().manual_seed(seed))

    def forward(self, rows: Rows) -> Tensor:
        """Values (N, A) float32, 0 behind a response's end."""
        hidden, _ = _action_hidden_states(self.backbone, rows, self.backbone.dtype)
        return _to_actions(self.value_head(hidden.float())[:, 0], rows)


def _action_hidden_states(
    backbone: PreTrainedModel, rows: Rows, dtype: torch.dtype, **wanted: bool
) -> tuple[Tensor, ModelOutput]:
    """Hidden states (M, H) that predict the M real actions, in row-major order of (N, A).

    `dtype` is the one that the backbone computes in. Its output comes with them, and holds what is
    `wanted`.
    """
    output = backbone(
        **wanted,
        input_ids=rows.input_ids,
        position_ids=rows.position_ids,
        use_cache=False,
        **attention_inputs(backbone, rows.attention, dtype),
        **token_type_inputs(backbone, rows.input_ids),
        **media_inputs(backbone, rows.media),
    )
    check_attention_ran(backbone, rows.attention)
    columns = rows.action_columns[rows.action_mask]
    # Not by [columns]: the samples of a group share the prompt's last column, and the backward pass
    # of indexing adds them up in whatever order threads come. index_select adds in order.
    hidden = output.last_hidden_state.flatten(0, 1).index_select(0, columns)
    return hidden, output


def _to_actions(values: Tensor, rows: Rows) -> Tensor:
    """Spread (M,) values of real actions over (N, A), 0 elsewhere."""
    zeros = values.new_zeros(rows.action_mask.shape)
    return zeros.masked_scatter(rows.action_mask, values)
