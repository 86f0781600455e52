"""The cache of rendered prompts is bounded by bytes and drops what was not used for longest."""

from lightrft_ray.workers.render_cache import RenderCache


def test_what_was_not_used_for_longest_goes() -> None:
    cache: RenderCache[str] = RenderCache(limit=10)
    cache.put(b"a", "A", 4)
    cache.put(b"b", "B", 4)
    assert cache.get(b"a") == "A"
    cache.put(b"c", "C", 4)
    assert [cache.get(key) for key in (b"a", b"b", b"c")] == ["A", None, "C"]
    assert cache.nbytes == 8


def test_what_is_too_large_is_not_kept_and_drops_nothing() -> None:
    cache: RenderCache[str] = RenderCache(limit=10)
    cache.put(b"a", "A", 10)
    cache.put(b"b", "B", 11)
    assert cache.get(b"a") == "A" and cache.get(b"b") is None


def test_a_key_is_counted_once() -> None:
    cache: RenderCache[str] = RenderCache(limit=10)
    for _ in range(5):
        cache.put(b"a", "A", 4)
    assert (len(cache), cache.nbytes) == (1, 4)


def test_no_bytes_are_no_cache() -> None:
    cache: RenderCache[str] = RenderCache(limit=0)
    cache.put(b"a", "A", 1)
    assert len(cache) == 0
