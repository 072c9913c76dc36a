"""The program as a whole: quick to start, documented, and never a traceback for a user's mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli import main
from plait.cli.app import all_verbs, app
from plait.errors import PlaitError
from plait.version import __version__

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"
RUN = [sys.executable, "-c", "import sys; from plait.cli import main; sys.exit(main())"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*RUN, *arguments], capture_output=True, check=False, env={**os.environ, **environment})


def test_every_command_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [verb for verb in all_verbs() if f"\n## plait {verb}\n" not in page] == []


@pytest.mark.parametrize("verb", all_verbs())
def test_every_option_is_documented(verb: str) -> None:
    from typer.main import get_command

    section = PAGE.read_text(encoding="utf-8").split(f"\n## plait {verb}\n")[1].split("\n## ")[0]
    command: Any = get_command(app)
    for word in verb.split():
        command = command.commands[word]
    options = [name for option in command.params for name in option.opts if name.startswith("-")]
    assert [name for name in options if f"`{name}" not in section] == []


@pytest.mark.parametrize("verb", all_verbs())
def test_every_command_has_help_with_an_example(runner: CliRunner, verb: str) -> None:
    result = runner.invoke(app, [*verb.split(), "--help"])
    assert result.exit_code == 0
    assert f"  plait {verb} " in result.stdout.split("Example")[1]
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_list_of_commands_has_whole_sentences(runner: CliRunner) -> None:
    assert "..." not in runner.invoke(app, ["--help"]).stdout.replace("[ARGS]...", "")


def test_the_version_is_shown(runner: CliRunner, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"plait {__version__}\n"
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == f"plait {__version__}\n"
    assert runner.invoke(app, ["--version"]).stdout == runner.invoke(app, ["-V"]).stdout == f"plait {__version__}\n"


def test_the_shell_completes_commands_and_options() -> None:
    def completed(words: str) -> list[str]:
        environment = {"_PLAIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return run(**environment).stdout.decode().split()

    assert completed("plait sea") == ["search"]
    assert "--group-by" in completed("plait search --gr")
    assert (
        b"_plait_completion"
        in run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout
    )


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["weave"], 2), (["search"], 2)])
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert main(arguments) == code


def loaded_by(*arguments: str) -> set[str]:
    code = f"from plait.cli import main; main({list(arguments)!r}); import sys; sys.stderr.write(' '.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stderr.split())


def test_version_and_help_load_next_to_nothing() -> None:
    heavy = {"numpy", "rich", "onnxruntime", "tokenizers", "sqlite3", "ir_measures"}
    assert loaded_by("--version").isdisjoint({*heavy, "typer"})
    assert loaded_by("--help").isdisjoint(heavy)
    assert loaded_by("search", "--help").isdisjoint(heavy)


def test_a_system_error_is_one_message_without_a_traceback(
    runner: CliRunner, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = library.make("ix", a="x")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "ix/dense")

    monkeypatch.setattr(index, "search", fail)
    result = runner.invoke(app, ["search", "ix", "x"])
    assert result.exit_code == 1
    assert result.stderr == "plait: [Errno 28] No space left on device: 'ix/dense'\n"


@pytest.mark.parametrize(("error", "code"), [(PlaitError("wrong"), 2), (KeyboardInterrupt(), 130)])
def test_errors_of_a_command_become_a_message(
    runner: CliRunner, library: Library, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    index = library.make("ix", a="x")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(index, "search", fail)
    result = runner.invoke(app, ["search", "ix", "x"])
    assert result.exit_code == code
    assert result.stderr.startswith("plait: ")


def test_a_terminal_that_cannot_show_a_character_gets_an_escape() -> None:
    result = run("index", "né.txt", "--to", "ix", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 2
    assert result.stderr.decode("ascii").startswith(r"plait: there is no file or folder 'n\xe9.txt'")


def test_arguments_that_are_not_text_are_refused_without_a_traceback() -> None:
    odd = os.fsdecode(b"n\xe9.txt")
    result = run("index", odd, "--to", "ix", PYTHONIOENCODING="utf-8")
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize("options", [["--json"], ["--full"], []])
def test_a_search_whose_reader_stops_early_exits_with_0(tmp_path: Path, options: list[str]) -> None:
    """As `plait search ... | head -1` does; 1 would say that nothing was found."""
    import plait

    with plait.open(tmp_path / "ix", create=True, spec=plait.EmbeddingSpec()) as index:
        documents = [{"id": str(number), "text": "woven " * 2000} for number in range(50)]
        index.add_embeddings(documents, plait.Embeddings())
    command = [*RUN, "search", str(tmp_path / "ix"), "woven", "-k", "50", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_a_closed_pipe_is_no_error() -> None:
    script = f"{subprocess.list2cmdline(RUN)} --help | true"
    result = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert b"Traceback" not in result.stderr
    assert b"BrokenPipe" not in result.stderr
