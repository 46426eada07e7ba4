from __future__ import annotations

from pathlib import Path

import pytest

from auth.key_file import read_key_file
from auth.main import main


def test_the_command_makes_a_key_and_keeps_it_to_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has a key; neither stream has it."""
    path = tmp_path / "key"
    assert main([str(path)]) == 0
    key = read_key_file(path).reveal()
    output = capsys.readouterr()
    assert output.out == ""
    assert str(path) in output.err
    assert key not in output.err


def test_the_command_prints_the_key_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --print, standard output has the key and nothing else."""
    path = tmp_path / "key"
    assert main(["--print", str(path)]) == 0
    assert capsys.readouterr().out == read_key_file(path).reveal() + "\n"


def test_the_command_refuses_to_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run changes nothing, says why in one line, and fails."""
    path = tmp_path / "key"
    main([str(path)])
    before = path.read_bytes()
    capsys.readouterr()
    assert main([str(path)]) == 9
    assert path.read_bytes() == before
    assert capsys.readouterr().err.count("\n") == 1


def test_abbreviated_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--pr is not --print."""
    with pytest.raises(SystemExit) as caught:
        main(["--pr", str(tmp_path / "key")])
    assert caught.value.code == 2
    capsys.readouterr()
