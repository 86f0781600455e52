"""No topic of golden vectors goes untested, whatever folder they come from."""

import re
from pathlib import Path

from golden_cases import topics


def test_every_topic_has_a_test() -> None:
    sources = [path.read_text() for path in Path(__file__).parent.rglob("*.py")]
    tested = {topic for source in sources for topic in re.findall(r'load\("(\w+)"\)', source)}
    assert topics() <= tested
