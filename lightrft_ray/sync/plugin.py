"""The vLLM plugin that makes our weight transport known in every process of an engine."""

from lightrft_ray.sync.engine_owner import end_with_owner

OBJECT_STORE = "lightrft_object_store"


def register() -> None:
    """Register the ``object_store`` transport; vLLM calls it in each process, maybe twice.

    The processes of an engine of ours are bound to its owner, too.
    """
    end_with_owner()
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if OBJECT_STORE in WeightTransferEngineFactory._registry:
        return
    WeightTransferEngineFactory.register_engine(
        OBJECT_STORE, "lightrft_ray.sync.engine", "ObjectStoreWeightTransferEngine"
    )
