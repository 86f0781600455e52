"""The viewer's server: what it gives, to whom, and what it keeps to itself."""

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from urllib.parse import quote, urlsplit

import pytest
from run_folders import write_run

from launch.view import main
from lightrft_ray.observe.viewer.run_files import open_runs
from lightrft_ray.observe.viewer.server import ViewerServer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "digits", steps=20, every=10)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[ViewerServer]:
    with ViewerServer(open_runs([run]), 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def get(
    server: ViewerServer, path: str, host: str | None = None, cookie: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Ask as a browser that has the token, unless another `cookie` is given."""
    own = f"{server.cookie}={server.token}"
    headers = {"Cookie": own if cookie is None else cookie}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers=headers if host is None else headers | {"Host": host})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_the_page_names_the_one_program_that_may_run(server: ViewerServer) -> None:
    status, headers, content = get(server, "/")
    assert status == 200
    assert b"<title>digits</title>" in content
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_runs_samples_and_timeline(server: ViewerServer) -> None:
    (about,) = json.loads(get(server, "/api/runs")[2])
    assert (about["name"], about["steps"]) == ("digits", [10, 20])
    assert about["config"]["trainer.num_steps"] == "20"
    metrics = json.loads(get(server, "/api/runs/0/metrics")[2])
    assert metrics["steps"] == list(range(21))
    assert metrics["columns"]["reward/mean"][0] is None
    assert metrics["info"]["policy/entropy"]["unit"] == "nats"
    single = json.loads(get(server, "/api/runs/0/samples?from=10&single=1")[2])
    assert {sample["step"] for sample in single["samples"]} == {10}
    assert len(json.loads(get(server, "/api/runs/0/samples?from=0")[2])["samples"]) == 16
    spans = json.loads(get(server, "/api/runs/0/timeline?from=5&count=2")[2])
    assert [row["step"] for row in spans] == [5, 6]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_other_names_of_this_machine_are_refused(server: ViewerServer, host: str) -> None:
    for path in ("/", "/api/runs"):
        status, _, content = get(server, path, host)
        assert (status, content) == (403, b"this server answers to localhost alone\n")


@pytest.mark.parametrize(
    "cookie", ["", "lightrft_viewer_{port}=other", "lightrft_viewer_0={token}", "=;\x01[]", "é="]
)
@pytest.mark.parametrize("query", ["", "?token=", "?token=other", "?token=é%ff"])
def test_who_has_no_token_learns_nothing(server: ViewerServer, cookie: str, query: str) -> None:
    cookie = cookie.format(port=server.server_port, token=server.token)
    for path in ("/", "/api/runs", "/api/runs/0/samples", "/files/0/a.png", "/other"):
        status, headers, content = get(server, path + quote(query, safe="?=%"), cookie=cookie)
        assert status == 403
        assert content == b"open the address that launch/view.py printed, with its token\n"
        assert server.token not in str(headers)


def test_the_printed_address_is_left_for_one_without_the_token(
    server: ViewerServer, capfd: pytest.CaptureFixture[str]
) -> None:
    token = urlsplit(server.url).query
    status, headers, content = get(server, f"/?{token}", cookie="")
    assert (status, headers["Location"], content) == (303, "/", b"")
    name_and_token, *limits = headers["Set-Cookie"].split("; ")
    assert limits == ["Path=/", "HttpOnly", "SameSite=Lax"]
    assert get(server, "/", cookie=name_and_token)[0] == 200
    assert get(server, f"/api/runs?{token}", cookie="")[0] == 200  # of a program
    assert get(server, f"/?{token}", host="evil.example", cookie=name_and_token)[0] == 403
    assert server.token not in "".join(capfd.readouterr())


def test_each_server_has_a_token_of_its_own(server: ViewerServer, run: Path) -> None:
    with ViewerServer(open_runs([run]), 0) as other:
        assert other.token != server.token and len(other.token) == 32


def test_localhost_is_answered(server: ViewerServer) -> None:
    assert get(server, "/", f"localhost:{server.server_port}")[0] == 200


def test_pictures_are_served_and_nothing_else(server: ViewerServer, run: Path) -> None:
    images = run / "trajectories" / "images"
    picture = next(images.iterdir())
    status, headers, content = get(server, f"/files/0/images/{picture.name}")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert content == picture.read_bytes()
    outside = run.parent / "outside.png"
    shutil.copy(picture, outside)
    (images / "link.png").symlink_to(outside)
    (images / "page.svg").write_text("<svg onload='alert(1)'/>")
    refused = (
        "images/link.png",
        "images/page.svg",
        "step_000010.jsonl",
        "../config.yaml",
        "../../outside.png",
        "%2e%2e/%2e%2e/outside.png",
        "%2Fetc%2Fpasswd",
        "images/%00.png",
        "images/" + 5000 * "a",
        "images",
    )
    for name in refused:
        assert get(server, f"/files/0/{name}")[0] == 404, name
    (images / "link.png").unlink()


@pytest.mark.parametrize(
    "path", ["/other", "/api/runs/7/metrics", "/api/runs/0/samples?from=x", "/files/9/a.png"]
)
def test_what_is_not_there_is_404(server: ViewerServer, path: str) -> None:
    assert get(server, path)[0] == 404


def error_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_second_viewer_on_the_port_is_told(
    server: ViewerServer, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = error_of([str(run), "--port", str(server.server_port)], capsys)
    assert line == (
        f"error: port {server.server_port} is taken, maybe by another viewer: "
        "choose another --port, or 0 for any free one"
    )


def test_folders_that_hold_no_run_are_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no folder" in error_of([str(tmp_path / "no")], capsys)
    assert "neither config.yaml nor metrics.jsonl" in error_of([str(tmp_path)], capsys)
    assert "is given twice" in error_of([str(run), f"{run}/"], capsys)
    assert "cannot be written" in error_of([str(run), "--html", f"{tmp_path}/no/x.html"], capsys)


def test_a_port_that_is_none_is_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port 70000 is no port" in error_of([str(run), "--port", "70000"], capsys)


@pytest.mark.parametrize(("error", "is_said"), [(BrokenPipeError(), False), (KeyError(), True)])
def test_a_browser_that_is_gone_is_no_error(
    server: ViewerServer, error: Exception, is_said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise error
    except type(error):
        with socket() as request:
            server.handle_error(request, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) == is_said


def test_one_file_is_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.html"
    assert main([str(run), "--html", str(file)]) == 0
    text = file.read_text()
    assert "http://" not in text and "https://" not in text
    assert "data:image/png;base64," in text
    assert capsys.readouterr().out == f"wrote {file}\n"
