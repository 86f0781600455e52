"""The README's runnable snippets run, and its tables name what there is."""

import re
from pathlib import Path

import pytest
from readme import README, ROOT, blocks

from lightrft_ray.config import RunConfig
from lightrft_ray.config.load import load_config
from lightrft_ray.config.settings import find_setting
from lightrft_ray.observe.names import FAMILIES, METRICS

_SECTIONS = "|".join(RunConfig.model_fields)


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language} runnable\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def section(title: str) -> str:
    _, _, rest = README.partition(f"\n## {title}\n")
    assert rest, title
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python_snippets_run(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {"__name__": "readme"})


def test_other_snippets_are_those_that_tests_know() -> None:
    """Each of these has a test of its own, with the files or models that it takes to be there."""
    known = {
        "python": ["# my_reward.py", "from lightrft_ray.models.judge "],
        "yaml": ["data:", "reward:", "# reward_server.yaml"],
        "json": ['{"prompt"'],
        "text": ["$ make demo", "layout"],
    }
    for language, beginnings in known.items():
        for block, beginning in zip(blocks(language), beginnings, strict=True):
            assert block.startswith(beginning)


def test_there_are_snippets_of_all_that_can_be_added() -> None:
    assert len(re.findall("```python runnable", section("Adding your own"))) == 4


@pytest.mark.parametrize("snippet", snippets("yaml"))
def test_configurations_load(snippet: str, tmp_path: Path) -> None:
    (tmp_path / "my_reward.py").write_text("def reward_func(response, reference): return 1.0\n")
    (tmp_path / "run.yaml").write_text(snippet)
    load_config(tmp_path / "run.yaml", [])


def test_options_that_keep_their_names_exist() -> None:
    names = re.findall(r"`(\w+)`", section("Coming from LightRFT or OpenRLHF").partition("\n|")[0])
    assert len(names) > 50
    assert [name for name in names if find_setting(name) is None] == []


def test_settings_named_beside_other_programs_options_exist() -> None:
    rows = [row.split("|") for row in section("Coming from LightRFT or OpenRLHF").splitlines()]
    named = [cell for row in rows if len(row) == 5 for cell in re.findall(r"`([^`]+)`", row[2])]
    assert len(named) > 20
    check_settings(named)


def test_settings_and_metrics_named_for_symptoms_exist() -> None:
    table = section("When something is wrong")
    named = re.findall(rf"`((?:{_SECTIONS})\.\w+(?:: [\w.]+)?)`", table)
    assert len(named) > 20
    check_settings(named)
    metrics = re.findall(r"`([a-z]+/\w+)`", table)
    assert len(metrics) > 8
    assert [name for name in metrics if name not in METRICS | FAMILIES] == []


def check_settings(named: list[str]) -> None:
    for text in named:
        name, _, value = text.partition(": ")
        setting = find_setting(name)
        assert setting is not None, name
        known = setting.type_label.split("|")
        assert not value or value in known or {"int", "str"} & set(known), text


def test_every_recipe_is_in_the_table() -> None:
    table = section("Recipes")
    recipes = {path.name for path in (ROOT / "launch" / "configs").glob("*.yaml")}
    assert set(re.findall(r"`(\w+\.yaml)`", table)) == recipes


def test_messages_quoted_for_symptoms_are_in_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "lightrft_ray").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    for quoted in re.findall("“([^”]+)”", section("When something is wrong")):
        for part in quoted.split("…"):
            assert part.strip() in joined, quoted


def test_the_contents_lead_to_headings() -> None:
    headings = re.findall(r"^#{2,3} (.+)$", README, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-").replace(".", "") for heading in headings}
    links = re.findall(r"\]\(#([\w-]+)\)", README)
    assert len(links) > 10
    assert [link for link in links if link not in anchors] == []
