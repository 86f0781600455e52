"""The process in which media are decoded: `python -m lightrft_ray.data.decode_host`.

It is started and spoken to by `MediaDecoder`.
"""

import sys
from multiprocessing.connection import Connection

from lightrft_ray.config.errors import DataFault, UserError
from lightrft_ray.data.child_process import connect_to_parent
from lightrft_ray.data.decoding import DecodedMedia, decode_media


def main(connection: Connection) -> None:
    """Decode what comes, until the other end closes."""
    while True:
        try:
            prompt, encoded, settings = connection.recv()
        except EOFError:
            return
        answer: DecodedMedia | DataFault | UserError
        try:
            answer = decode_media(prompt, encoded, settings)
        except (DataFault, UserError) as fault:
            answer = fault
        connection.send(answer)


if __name__ == "__main__":
    main(connect_to_parent(*sys.argv[1:]))
