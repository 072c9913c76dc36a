"""`ServeConfig`: what `plait serve` serves and how. It comes from a TOML file and from flags, which win."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from plait.checks import shown
from plait.errors import ConfigError
from plait.serve.limits import Limits
from plait.serve.protocol import INDEX_NAME

DEFAULT_PORT = 8765
LOG_FORMATS = ("auto", "json", "text")
Section = TypeVar("Section", bound="IndexConfig | Batching | Queues | Processes | Telemetry | Limits")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """One index: its name in addresses, its folder, and the model folder if the index does not name its model."""

    name: str
    path: Path
    model: str | None = None  # as `model` of plait.open; a folder must be given here
    read_only: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(INDEX_NAME, self.name):
            raise ConfigError(
                f"the name of an index is {shown(self.name)}; it must be at most 64 of a-z, 0-9, - and _, and begin "
                f"with a letter or digit. Choose a name: NAME=FOLDER"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Texts of several requests that a model reads at once."""

    max_texts: int = 32  # of one call of the encoder
    max_pairs: int = 64  # of one call of the reranker
    wait_ms: float = 2.0  # that a batch waits for further requests, at most
    max_waiting: int = 2_048  # texts that wait for a model; beyond them requests get 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """How much work is done at the same time, and how much may wait. Counts are for each worker process."""

    running: int = 32  # searches and reads that have begun; some of them wait for the encoder
    computing: int | None = None  # of those, the ones that compute; by default the processors of the worker
    waiting: int = 256  # searches and reads that have not begun; beyond them requests get 429
    max_wait: float = 1.0  # seconds that a search may be expected to wait; beyond them it gets 429
    writes: int = 64  # writes that wait, of each index
    write_bytes: int = 256_000_000  # of documents in the writes that wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """Worker processes, the writer, and how they are watched."""

    workers: int = 1
    encoder_threads: int | None = None  # of each worker; by default its share of the processors
    search_threads: int = 1  # of one search
    writer_threads: int | None = None  # of the writer's encoder; by default half of the processors
    writer_nice: int = 5  # how much the writer yields to searches
    refresh: float = 0.1  # seconds between two looks for new commits
    grace: float = 20.0  # seconds that running requests get when the server stops
    hang: float = 30.0  # seconds without a sign of life before a process is killed and replaced
    start: float = 120.0  # seconds that a process may take to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Logs, metrics and spans. Texts of queries and documents are never logged unless `log_queries` is set."""

    log_format: str = "auto"  # json, text, or auto: text on a terminal, else json
    log_level: str = "info"
    log_queries: bool = False
    otlp_endpoint: str | None = None  # such as http://localhost:4318; spans are sent there (extra plait[otel])

    def __post_init__(self) -> None:
        if self.log_format not in LOG_FORMATS:
            raise ConfigError(f"log_format is {shown(self.log_format)}; choose one of {', '.join(LOG_FORMATS)}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ConfigError(f"log_level is {shown(self.log_level)}; choose debug, info, warning or error")


SECTIONS: dict[str, type[Batching | Queues | Processes | Telemetry | Limits]] = {
    "batching": Batching,
    "queues": Queues,
    "processes": Processes,
    "telemetry": Telemetry,
    "limits": Limits,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Everything that a server is given. Checked when it is made, and never changed."""

    indexes: tuple[IndexConfig, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data_dir: Path | None = None  # where clients may create indexes; None: nowhere
    state_dir: Path | None = None  # jobs and idempotency keys; by default a folder of the user's state
    keys_file: Path | None = None  # hashed API keys, made by `plait keys`
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()  # names in Host headers, beside those of loopback and `host`
    allowed_origins: tuple[str, ...] = ()  # origins that browsers may call from
    forwarded_allow_ips: str = "127.0.0.1"  # proxies whose X-Forwarded-For and -Proto are trusted
    models: tuple[str, ...] = ()  # further models for /v1/encode and for new indexes
    rerankers: tuple[str, ...] = ()  # models that requests may name; the bundled one is always allowed
    read_only: bool = False
    sync_documents: int = 500  # a write of more documents becomes a job
    idempotency_hours: float = 24.0
    job_hours: float = 24.0  # how long a job that has ended can be asked for
    docs: bool = True
    page: bool = True
    mcp: bool = True
    batching: Batching = field(default_factory=Batching)
    queues: Queues = field(default_factory=Queues)
    processes: Processes = field(default_factory=Processes)
    telemetry: Telemetry = field(default_factory=Telemetry)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        names = [index.name for index in self.indexes]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"two indexes have the name {repeated.pop()!r}; give one another name: NAME=FOLDER")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it must be from 0 (any free port) to 65535")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate (tls_cert) and its key (tls_key)")
        _check_numbers(self.batching, self.queues, self.processes, self)

    @property
    def spool_dir(self) -> Path | None:
        """Where uploads wait until they are written."""
        return None if self.state_dir is None else self.state_dir / "uploads"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls_cert is None else 'https'}://{host}:{self.port}"

    def check_exposure(self) -> None:
        """ConfigError for a server that anybody on the network could read and write."""
        if not self.is_loopback and self.keys_file is None:
            raise ConfigError(
                f"host {self.host} can be reached from other machines, and no keys are set: everybody there could read "
                f"and change the indexes. Make a key with `plait keys add` and give --keys FILE, or listen on 127.0.0.1"
            )

    def to_json(self) -> str:
        """All of it, for the processes of the server."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> ServeConfig:
        return _config(json.loads(text), Path())


def read_config(file: Path) -> ServeConfig:
    """The configuration in a TOML file. Paths in it are relative to its folder."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a TOML file: {error}") from None
    tables = values.pop("indexes", {})
    if not isinstance(tables, dict):
        raise ConfigError(f"{file}: indexes must be tables, such as [indexes.docs] with path = 'docs-index'")
    values["indexes"] = [
        {"name": name, **(table if isinstance(table, dict) else {"path": table})} for name, table in tables.items()
    ]
    try:
        return _config(values, file.parent)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def index_argument(text: str) -> IndexConfig:
    """The index of a command line argument: NAME=FOLDER, or a folder whose name is the name."""
    name, equals, path = text.partition("=")
    if equals and "/" not in name:
        return IndexConfig(name=name, path=Path(path))
    return IndexConfig(
        name=re.sub(r"[^a-z0-9_-]+", "-", Path(text).resolve().name.lower()).strip("-_"), path=Path(text)
    )


def with_section(config: ServeConfig, section: str, **values: Any) -> ServeConfig:
    """A copy with some values of a section replaced; None leaves a value as it is."""
    given = {name: value for name, value in values.items() if value is not None}
    changes: dict[str, Any] = {section: replace(getattr(config, section), **given)}
    return replace(config, **changes)


def default_state_dir(config: ServeConfig) -> Path:
    """A folder for this set of indexes and this port, below the state of the user."""
    import hashlib

    served = json.dumps([config.port, str(config.data_dir), *sorted(str(one.path.resolve()) for one in config.indexes)])
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "plait" / f"serve-{hashlib.sha256(served.encode()).hexdigest()[:12]}"


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a server at this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _config(values: Mapping[str, Any], folder: Path) -> ServeConfig:
    known = {one.name: one for one in fields(ServeConfig)}
    _check_names("the configuration", values, list(known))
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name == "indexes":
            given[name] = tuple(_index(one, folder) for one in value)
        elif name in SECTIONS:
            given[name] = _section(SECTIONS[name], name, value)
        else:
            given[name] = _value(name, value, str(known[name].type), folder)
    return ServeConfig(**given)


def _index(values: Mapping[str, Any], folder: Path) -> IndexConfig:
    _check_names(f"index {values.get('name')!r}", values, [one.name for one in fields(IndexConfig)])
    if not isinstance(values.get("path"), str):
        raise ConfigError(f"index {values.get('name')!r} has no path; give the folder: path = 'docs-index'")
    return IndexConfig(
        name=values["name"],
        path=folder / Path(values["path"]).expanduser(),
        model=values.get("model"),
        read_only=bool(values.get("read_only", False)),
    )


def _section(kind: type[Section], name: str, values: Any) -> Section:
    if not isinstance(values, dict):
        raise ConfigError(f"{name} must be a table: [{name}]")
    types = {one.name: str(one.type) for one in fields(kind)}
    _check_names(f"[{name}]", values, list(types))
    return kind(**{key: _value(key, value, types[key], Path()) for key, value in values.items()})


def _value(name: str, value: Any, kind: str, folder: Path) -> Any:
    if value is None and "None" in kind:
        return None
    if kind.startswith("Path") and isinstance(value, str):
        return folder / Path(value).expanduser()
    if kind.startswith("tuple") and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    if kind.startswith("bool") and isinstance(value, bool):
        return value
    if kind.startswith("int") and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind.startswith("float") and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind.startswith("str") and isinstance(value, str):
        return value
    due = kind.replace("Path", "path (text)").replace("tuple[str, ...]", "list of texts").replace(" | None", "")
    raise ConfigError(f"{name} is {shown(value)}; it must be of type {due}")


def _check_names(where: str, values: Mapping[str, Any], known: list[str]) -> None:
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it knows {', '.join(known)}"
            raise ConfigError(f"{where} has the unknown name {name!r}; {hint}")


def _check_numbers(*sections: object) -> None:
    for section in sections:
        for one in fields(section):  # type: ignore[arg-type]
            value = getattr(section, one.name)
            least = 0 if one.name in ("wait_ms", "port", "writer_nice", "waiting") else 1e-3
            if isinstance(value, int | float) and not isinstance(value, bool) and not least <= value < 2**53:
                raise ConfigError(f"{one.name} is {value}; it must be {'at least 0' if least == 0 else 'above 0'}")
