"""Write the policy of a checkpoint as a Hugging Face folder, for transformers, vLLM and the hub.

`--checkpoint` takes a checkpoint (step_N), the folder they are in, or the output folder of a run,
whose newest one it is then.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lightrft_ray.config import UserError
from lightrft_ray.config.cli import exit_with_error


def main(argv: Sequence[str]) -> int:
    """Export by the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="launch/export.py", description=__doc__)
    parser.add_argument("--checkpoint", required=True, help="path or fsspec url")
    parser.add_argument("--output", required=True, type=Path, help="folder to make")
    parser.add_argument(
        "--lora", choices=["merged", "adapter"], help="another form than checkpoint.hf_lora's"
    )
    options = parser.parse_args(argv)
    # Imported here: --help and mistakes need not wait for torch.
    from lightrft_ray.driver.export import export_checkpoint
    from lightrft_ray.driver.resume import checkpoint_at

    try:
        checkpoint = checkpoint_at(options.checkpoint, print)
        export_checkpoint(checkpoint, options.output, options.lora)
    except UserError as error:
        exit_with_error(error)
    print(f"step {checkpoint.step} of {checkpoint.storage.url}: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
