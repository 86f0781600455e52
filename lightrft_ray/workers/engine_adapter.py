"""The policy's adapter in a generator's engine, in the place of merged weights."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM

from lightrft_ray.config.model import ModelConfig

_MEMORY = Path("/dev/shm")  # files there are never written to a disk
_NAME, _NUMBER = "policy", 1


class EngineAdapter:
    """One adapter, whose factors each publication replaces."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._request: LoRARequest | None = None

    @property
    def request(self) -> LoRARequest | None:
        """What samples with the adapter; None before the first publication."""
        return self._request

    async def load(self, engine: AsyncLLM, factors: Mapping[str, Tensor]) -> None:
        """Have the engine use these factors, by peft's names, also for requests under way.

        vLLM takes adapters from folders alone: this one is in memory, and gone afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="lightrft_adapter_", dir=_MEMORY) as folder:
            save_file(dict(factors), f"{folder}/adapter_model.safetensors")
            settings = json.dumps(self._settings(factors))
            (Path(folder) / "adapter_config.json").write_text(settings)
            await engine.add_lora(LoRARequest(_NAME, _NUMBER, folder, load_inplace=True))
            # Of a request, vLLM would load it again in every step if that were in place, too.
            self._request = LoRARequest(_NAME, _NUMBER, folder)

    def _settings(self, factors: Mapping[str, Tensor]) -> dict[str, object]:
        """As peft writes them."""
        layers = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in factors}
        return {
            "peft_type": "LORA",
            "r": self._config.lora_rank,
            "lora_alpha": self._config.lora_alpha,
            "target_modules": sorted(layers),
            "bias": "none",
        }
