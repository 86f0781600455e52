"""How old what a step trains on is: metrics of asynchronous runs."""

import numpy as np

from lightrft_ray.driver.batch import RolloutBatch

Record = dict[str, float]


def staleness_record(batch: RolloutBatch, version: int) -> Record:
    """Of a batch that is to be trained on by this version of the weights.

    The staleness of a token is by how many versions the weights that sampled it are older, that of
    a sample the staleness of its oldest token.
    """
    by_sample = [version - sample.weight_versions for sample in batch.all_samples]
    by_token = np.concatenate(by_sample)
    oldest = np.array([each.max(initial=0) for each in by_sample])
    spans = [len(np.unique(each)) > 1 for each in by_sample]
    values, counts = np.unique(oldest, return_counts=True)
    shares = dict(zip(values.tolist(), (counts / len(oldest)).tolist(), strict=True))
    return {
        "staleness/mean": float(by_token.mean()),
        "staleness/max": float(oldest.max()),
        "staleness/spanning_fraction": sum(spans) / len(spans),
        **{f"staleness/share/{value}": share for value, share in shares.items()},
    }
