"""`plait serve`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.errors import ConfigError, PlaitError

if TYPE_CHECKING:
    from plait.serve.config import ServeConfig

DEMO_FOLDER = Path("plait-demo")


def serve(
    indexes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=]INDEX", help="The indexes to serve.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A configuration in TOML; flags win over it.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 is any free one. [default: 8765]")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Processes that search. [default: 1]")] = None,
    keys: Annotated[Path | None, typer.Option(metavar="FILE", help="API keys, made by `plait keys`.")] = None,
    data_dir: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where clients may create indexes.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Jobs and idempotency keys of this server.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate, for HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name of this server in Host headers; may be repeated.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse all writes.")] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help=f"Build the index of `plait demo` in {DEMO_FOLDER}, and serve it.")
    ] = False,
) -> None:
    """Serve indexes over HTTP, with a page to search them.

    The page is at /, the API below /v1, described at /openapi.json. Without keys
    the server listens on this machine only. Ctrl-C stops it: requests that run
    are finished.

    \b
    Examples:
      plait serve my-index
      plait serve docs=my-index mail=other-index --port 9000 --workers 2
      plait serve --demo
    """
    _check_installed()
    from plait.serve.config import ServeConfig, index_argument, read_config, with_section

    made = read_config(config) if config is not None else ServeConfig()
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "keys_file": keys,
        "data_dir": data_dir,
        "state_dir": state_dir,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "allowed_hosts": tuple(allowed_host) if allowed_host else None,
        "read_only": read_only or None,
    }
    served = (*made.indexes, *(index_argument(text) for text in indexes or ()))
    if demo:
        served = (*served, index_argument(f"demo={_built_demo()}"))
    made = replace(made, indexes=served, **{name: value for name, value in given.items() if value is not None})
    made = with_section(made, "processes", workers=workers)
    if not made.indexes and made.data_dir is None:
        raise ConfigError(
            "there is nothing to serve; give an index, --demo, or --data-dir for indexes that clients create"
        )
    _run(made)


def _check_installed() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"plait serve needs {error.name}, which is not installed: pip install 'plait[serve]'"
        ) from None


def _built_demo() -> Path:
    import plait
    from plait.cli.demo import build_demo

    with plait.open(DEMO_FOLDER, create=True) as opened:
        build_demo(opened, DEMO_FOLDER)
    return DEMO_FOLDER


def _run(config: ServeConfig) -> None:
    import plait
    from plait.serve.runtime.startup import check_startup
    from plait.serve.runtime.supervisor import Supervisor

    check_startup(config)
    for index in config.indexes:
        try:
            with plait.open(index.path, read_only=True) as opened:
                print(f"{index.name}: {len(opened):,} documents in {index.path}", flush=True)
        except PlaitError as error:
            raise type(error)(f"index {index.name!r} cannot be served: {error}") from None
    Supervisor(config, on_ready=_announce).run()


def _announce(config: ServeConfig) -> None:
    n_workers = config.processes.workers
    processes = "1 worker" if n_workers == 1 else f"{n_workers} workers"
    access = "no key is needed on this machine" if config.keys_file is None else f"keys of {config.keys_file}"
    print(f"serving at {config.url}  ({processes}; {access}). Ctrl-C stops the server", flush=True)
