"""The vLLM plugin that makes our weight transport known in every process of an engine."""

OBJECT_STORE = "lightrft_object_store"


def register() -> None:
    """Register the ``object_store`` transport; vLLM calls it in each process, maybe twice."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if OBJECT_STORE in WeightTransferEngineFactory._registry:
        return
    WeightTransferEngineFactory.register_engine(
        OBJECT_STORE, "lightrft_ray.sync.engine", "ObjectStoreWeightTransferEngine"
    )
