"""What can be known about the files in deploy/ without an engine: they agree with each other, with the defaults of the
server and with its routes and metrics. tests/deploy/test_tools.py runs them."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import stat
import tomllib
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plait.serve.config import DEFAULT_PORT, Processes, ServeConfig, read_config
from plait.serve.limits import Limits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DATA = "/var/lib/plait"


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, arguments) of each instruction, with continued lines joined."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def runtime() -> dict[str, str]:
    """The instructions of the last stage; each name once, the last one wins."""
    instructions = dockerfile()
    last = max(n for n, (name, _) in enumerate(instructions) if name == "FROM")
    return dict(instructions[last:])


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return loaded


def options(words: list[str]) -> dict[str, list[str]]:
    """The options of a command line of `plait serve`, by name."""
    flat = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    values: dict[str, list[str]] = {}
    for name, value in pairwise(flat):
        if name.startswith("--"):
            values.setdefault(name, []).append(value)
    return values


# -- the image


def test_the_image_runs_as_a_user_without_rights() -> None:
    user, _, group = runtime()["USER"].partition(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    assert f"--uid {user}" in runtime()["RUN"]
    assert "sudo" not in runtime()["RUN"]


def test_the_image_has_the_port_and_the_health_route_of_the_server() -> None:
    image = runtime()
    assert image["EXPOSE"] == str(DEFAULT_PORT)
    (address,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", image["HEALTHCHECK"])
    from plait.serve.routes.system import router

    assert address[0] == str(DEFAULT_PORT)
    assert address[1] in {getattr(route, "path", "") for route in router.routes}


def test_the_command_of_the_image_is_one_that_plait_takes_and_needs_a_key() -> None:
    from typer.main import get_command

    from plait.cli.app import app

    assert json.loads(runtime()["ENTRYPOINT"]) == ["plait"]
    verb, *words = json.loads(runtime()["CMD"])
    known = {name for option in get_command(app).commands[verb].params for name in option.opts}  # type: ignore[attr-defined]
    given = options(words)
    assert set(given) <= known
    assert given["--host"] == ["0.0.0.0"]
    assert all(value.startswith(f"{DATA}/") for name, (value,) in given.items() if name != "--host")
    assert "--keys" in given


def test_what_is_written_is_in_the_volume() -> None:
    image = runtime()
    assert image["VOLUME"] == image["WORKDIR"] == DATA
    assert f"install -d -o plait -g plait -m 0750 {DATA}" in image["RUN"]
    assert f"HOME={DATA}" in image["ENV"]


def test_bases_are_pinned_and_one_python_is_used_for_both_stages() -> None:
    (version,) = re.findall(r"^ARG PYTHON=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.M)
    assert re.match(r"3\.\d+\.\d+-slim-\w+$", version)
    assert [rest.partition(" ")[0] for name, rest in dockerfile() if name == "FROM"] == ["python:${PYTHON}"] * 2


def test_what_is_copied_exists_and_is_sent_to_the_engine() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = set()
    for name, rest in dockerfile():
        if name == "COPY" and not rest.startswith("--from"):
            copied |= set(shlex.split(rest)[:-1])
    assert copied == allowed
    assert [source for source in copied if not (ROOT / source).exists()] == []
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {build["readme"], *(pattern.split("/")[0] for pattern in build["license-files"]), "CMakeLists.txt", "cpp"}
    assert [file for file in needed if not any(fnmatch(file, one) for one in copied)] == []


def test_constraints_allow_what_plait_requires() -> None:
    lines = [line for line in (DEPLOY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (install,) = [rest for name, rest in dockerfile() if name == "RUN" and "constraint" in rest]
    (chosen,) = re.findall(r"\$\{wheel\}\[([\w,]+)\]", install)
    wanted = [
        Requirement(one) for one in [*project["dependencies"], *(r for e in chosen.split(",") for r in extras[e])]
    ]
    wrong = [str(one) for one in wanted if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))]
    assert wrong == []


# -- compose


def test_every_service_is_hardened_and_pinned_and_listens_on_loopback(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        tag = service["image"].rpartition(":")[2]
        assert tag == "local" if "build" in service else re.fullmatch(r"v?\d+\.\d+\.\d+", tag), name
        assert "privileged" not in service, name


def test_compose_agrees_with_the_image(compose: dict[str, Any]) -> None:
    service = compose["services"]["plait"]
    assert service["ports"] == [f"127.0.0.1:{DEFAULT_PORT}:{DEFAULT_PORT}"]
    assert service["volumes"] == [f"plait:{runtime()['VOLUME']}"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    given, image = options(service["command"]), options(json.loads(runtime()["CMD"]))
    assert {name: given[name] for name in image} == image
    assert int(service["stop_grace_period"].rstrip("s")) > 2 * Processes().grace + 5


def test_prometheus_asks_plait_by_a_name_and_with_a_key_that_it_takes(compose: dict[str, Any]) -> None:
    (scrape,) = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    host, _, port = scrape["static_configs"][0]["targets"][0].partition(":")
    assert port == str(DEFAULT_PORT)
    assert host in compose["services"]
    assert host in options(compose["services"]["plait"]["command"])["--allowed-host"]
    (secret,) = compose["services"]["prometheus"]["secrets"]
    assert scrape["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    script = (DEPLOY / "make-secrets.sh").read_text()
    assert "--scope metrics" in script
    made = {Path(secret["file"]).name for secret in compose["secrets"].values()}
    assert all(f"> secrets/{name}" in script for name in made)
    assert (DEPLOY / "make-secrets.sh").stat().st_mode & stat.S_IXUSR
    assert "deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_files_that_are_mounted_exist_and_grafana_finds_them(compose: dict[str, Any]) -> None:
    mounts = dict(
        volume.removesuffix(":ro").split(":")
        for service in compose["services"].values()
        for volume in service["volumes"]
        if volume.startswith("./")
    )
    assert [source for source in mounts if not (DEPLOY / source).exists()] == []
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/plait.yaml").read_text())["providers"]
    assert mounts["./grafana/plait.json"] == f"{provider['options']['path']}/plait.json"
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    named = {volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert {name for name in named if not name.startswith(".")} == set(compose["volumes"])


def test_every_metric_of_the_alerts_is_one_of_the_dashboard_or_the_server() -> None:
    sources = (ROOT / "src/plait/serve/runtime/metrics.py").read_text()
    (group,) = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    named = {name for rule in group["rules"] for name in re.findall(r"plait_\w+", rule["expr"])}
    assert len(named) >= 4
    assert [name for name in named if f'"{name.removesuffix("_bucket")}"' not in sources] == []


# -- systemd and proxies


def test_the_unit_runs_plait_without_rights_on_what_the_configuration_names() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(DEPLOY / "systemd/plait.service")
    service = parser["Service"]
    assert service["User"] not in ("", "root")
    assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")
    assert service["CapabilityBoundingSet"] == ""
    assert service["StateDirectory"] == "plait"
    assert int(service["TimeoutStopSec"]) > 2 * Processes().grace + 5
    config = read_config(DEPLOY / "serve.toml")
    assert (config.host, config.port) == ("127.0.0.1", DEFAULT_PORT)
    assert all(str(path).startswith(f"{DATA}/") for path in (config.data_dir, config.state_dir, config.keys_file))
    assert config.keys_file is not None


@pytest.mark.parametrize("file", ["nginx/plait.conf", "caddy/Caddyfile"])
def test_proxies_agree_with_the_server(file: str) -> None:
    text = (DEPLOY / file).read_text()
    addresses = set(re.findall(r"127\.0\.0\.1:(\d+)", text))
    assert addresses == {str(ServeConfig().port)}
    limits = Limits()
    sizes = {
        int(n) * {"m": 10**6, "g": 10**9}[unit.lower()] for n, unit in re.findall(r"max_\w*size (\d+)([mMgG])", text)
    }
    assert limits.max_body_bytes <= min(sizes) <= 2 * limits.max_body_bytes
    assert max(sizes) == limits.max_upload_bytes
    waits = [int(n) for n in re.findall(r"(?:proxy_read_timeout|response_header_timeout) (\d+)s", text)]
    assert waits
    assert min(waits) > limits.max_timeout
    keepalive = [int(n) for n in re.findall(r"keepalive(?:_timeout)? (\d+)s", text)]
    assert keepalive
    assert max(keepalive) < 30, "plait closes an idle connection after 30 s"
