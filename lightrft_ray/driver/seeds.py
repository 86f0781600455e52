"""Seeds of samples."""

import hashlib

_SEED_BITS = 31  # vLLM adds the sample's index and the sum must still be a seed


def prompt_seed(run_seed: int, prompt_id: str, epoch: int) -> int:
    """Seed of a prompt's first sample; sample i has this plus i.

    It hashes what the sample is and nothing else, so that a rollout does not depend on which
    generator runs it, or when.
    """
    key = f"{run_seed}/{prompt_id}/{epoch}".encode()
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _SEED_BITS)
