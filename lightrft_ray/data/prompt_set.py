"""Many prompts, on disk: what stays in memory is their ids and places, some 100 bytes each."""

import json
import os
import tempfile
from array import array
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import overload

from lightrft_ray.config.errors import UserError
from lightrft_ray.data.prompt import Prompt
from lightrft_ray.data.stored_media import is_stored


class PromptSet(Sequence[Prompt]):
    """Prompts of one or more sources in order, each read from a scratch file when asked for.

    `parts` are the places of each source that `extend` put in. The scratch file is in Python's
    folder for temporary files and has no name: it goes with the process. It holds texts and
    references; media stay where they are.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="lightrft-prompts-")  # noqa: SIM115 - its own
        self._size = 0
        self._starts, self._sizes = array("Q"), array("L")
        self._roots: dict[str, int] = {}
        self._media_file = ""
        self._examples: dict[str, int] = {}  # places of the first with an image and with a video
        self.parts: list[range] = []
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.max_images = 0
        self.max_videos = 0

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Prompt: ...
    @overload
    def __getitem__(self, place: slice) -> list[Prompt]: ...
    def __getitem__(self, place: int | slice) -> Prompt | list[Prompt]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        start, size = self._starts[place], self._sizes[place]
        # Reads at a place without moving the file's own, whoever else reads.
        return self._loaded(os.pread(self._file.fileno(), size, start))

    @property
    def examples(self) -> list[Prompt]:
        """The first prompt with an image, and the first with a video."""
        return [self[place] for place in self._examples.values()]

    def append(self, prompt: Prompt) -> None:
        """Write a prompt behind the others. Raises UserError where the disk is full."""
        root = self._roots.setdefault(str(prompt.image_root), len(self._roots))
        media = (prompt.images, root, prompt.videos)
        values = (prompt.id, prompt.messages, *media, prompt.reference, prompt.label)
        content = json.dumps(values, ensure_ascii=False).encode()
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            raise UserError(
                f"{tempfile.gettempdir()}: prompts cannot be kept there ({error.strerror}): make "
                "room, or set TMPDIR to another folder"
            ) from error
        self._starts.append(self._size)
        self._sizes.append(len(content))
        self._size += len(content)
        for medium, references in (("image", prompt.images), ("video", prompt.videos)):
            if references:
                self._examples.setdefault(medium, len(self.ids))
        self.ids.append(prompt.id)
        self.labels.add(prompt.label)
        self.max_images = max(self.max_images, len(prompt.images))
        self.max_videos = max(self.max_videos, len(prompt.videos))

    def extend(self, prompts: Iterable[Prompt]) -> None:
        """Append all prompts of a source; they become one part."""
        start = len(self)
        for prompt in prompts:
            self.append(prompt)
        self.parts.append(range(start, len(self)))

    def store_media_in(self, path: str) -> None:
        """Complete the references to media that were in the rows themselves."""
        self._media_file = path

    def without(self, places: Collection[int]) -> "PromptSet":
        """A set of the others, in their order."""
        dropped, rest = set(places), PromptSet()
        for place in range(len(self)):
            if place not in dropped:
                rest.append(self[place])
        return rest

    def _loaded(self, content: bytes) -> Prompt:
        name, messages, images, root, videos, reference, label = json.loads(content)
        return Prompt(
            id=name,
            messages=tuple(messages),
            images=tuple(self._completed(image) for image in images),
            image_root=Path(list(self._roots)[root]),
            reference=reference,
            label=label,
            videos=tuple(self._completed(video) for video in videos),
        )

    def _completed(self, reference: str) -> str:
        if is_stored(reference) and reference.endswith("@"):
            return reference + self._media_file
        return reference
