"""The page as one HTML text: its program, its style and, in a static page, its data are inside.

One text serves both ways of looking, needs no build step and no network, and lets the content
security policy name by hash the one program and the one style that may run.
"""

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from pathlib import Path

_ASSETS = Path(__file__).parent / "assets"
_ENTRY = "main.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def render_page(data: object, title: str) -> str:
    """The page; `data` is JSON that it finds inside, None where it asks a server.

    Texts of a run, which a model or a data set wrote, are data alone: `<` and `>` do not appear.
    """
    program, style = bundle(), _asset("viewer.css")
    parts = {
        "@TITLE@": escape(title),
        "@POLICY@": content_policy(served=data is None),
        "@STYLE@": style,
        "@DATA@": json_for_html(data),
        "@PROGRAM@": program,
    }
    # One pass: a text of the data that looks like a place to fill is left alone.
    return re.sub("|".join(parts), lambda found: parts[found[0]], _asset("page.html"))


def content_policy(served: bool) -> str:
    """The content security policy of the page: its own program, style and pictures, no more."""
    sources = {
        "default-src": "'none'",
        "script-src": _hash(bundle()),
        "style-src": _hash(_asset("viewer.css")),
        "img-src": "'self' data:" if served else "data:",
        "connect-src": "'self'" if served else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {source}" for name, source in sources.items())


def json_for_html(data: object) -> str:
    """`data` as JSON that can stand in a script element: it cannot end it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def bundle() -> str:
    """The modules as one script: each in a scope of its own, after those that it imports."""
    done: dict[str, str] = {}
    _add(_ENTRY, done, ())
    return "\n".join(done.values())


def _add(name: str, done: dict[str, str], path: tuple[str, ...]) -> None:
    if name in path:
        raise ValueError(f"modules import each other: {' -> '.join([*path, name])}")
    source = _asset(name)
    for _, imported in _IMPORT.findall(source):
        if imported not in done:
            _add(imported, done, (*path, name))
    names = ", ".join(_EXPORT.findall(source))
    body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_scope(found[2])};", source)
    body = _EXPORT.sub("", body)
    done[name] = f"const {_scope(name)} = (() => {{\n{body}return {{ {names} }};\n}})();"


def _scope(name: str) -> str:
    return "module_" + name.removesuffix(".js").replace("-", "_")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
