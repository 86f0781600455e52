"""Images and videos that clients have sent, so that they can name them by their hash."""

from collections import OrderedDict
from collections.abc import Iterable

from lightrft_ray.rewards.proto import reward_pb2 as pb
from lightrft_ray.rewards.sample import EncodedMedia


class MissingMediaError(Exception):
    """Hashes that stand for bytes which are not, or no longer, here."""

    def __init__(self, hashes: list[bytes]) -> None:
        super().__init__("the server does not have the bytes of all images and videos")
        self.hashes = hashes


class MediaStore:
    """The media used last, up to a number of bytes in all."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._media: OrderedDict[str, EncodedMedia] = OrderedDict()
        self.bytes = 0

    def find(self, content_id: str) -> EncodedMedia | None:
        """Media by their content id; None if they are not here."""
        medium = self._media.get(content_id)
        if medium is not None:
            self._media.move_to_end(content_id)
        return medium

    def add(self, medium: EncodedMedia) -> None:
        """Keep media; those that were not used for the longest make room."""
        if medium.content_id in self._media:
            return
        self._media[medium.content_id] = medium
        self.bytes += len(medium.data)
        while self.bytes > self._max_bytes:
            _, oldest = self._media.popitem(last=False)
            self.bytes -= len(oldest.data)


class RequestMedia:
    """The media of one request: what it carries holds to its end, whatever else makes room."""

    def __init__(self, store: MediaStore) -> None:
        self._store = store
        self._carried: dict[str, EncodedMedia] = {}

    def resolve(self, messages: Iterable[pb.Media]) -> list[EncodedMedia]:
        """The media of messages; bytes they carry are kept for later ones.

        Raises MissingMediaError with all hashes that are not known, ValueError for a message that
        has neither bytes nor a hash.
        """
        found: list[EncodedMedia] = []
        missing: list[bytes] = []
        for message in messages:
            medium = self._resolve_one(message)
            if medium is None:
                missing.append(message.sha256)
            else:
                found.append(medium)
        if missing:
            raise MissingMediaError(missing)
        return found

    def _resolve_one(self, message: pb.Media) -> EncodedMedia | None:
        content = message.WhichOneof("content")
        if content == "data":
            medium = EncodedMedia(message.data, message.media_type)
            self._store.add(medium)
        elif content == "sha256":
            content_id = message.sha256.hex()
            known = self._carried.get(content_id) or self._store.find(content_id)
            if known is None:
                return None
            medium = known
        else:
            raise ValueError("an image or a video has neither bytes nor a hash")
        self._carried[medium.content_id] = medium
        return medium
