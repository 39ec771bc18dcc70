"""The scripts of `leasehold completion`, from the parsers themselves: nothing is listed twice.

Each script has a table: for every command, the words that may come next, and the options that are
followed by something. All shells find out which command is meant in the same way, by the words so
far that are no options, and nothing that follows one.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

_FILES: Final = frozenset({"FILE", "DIR", "DIR|FILE"})
"""Metavars of what is in the file system."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, as a shell must know it."""

    path: tuple[str, ...]
    """Its words after `leasehold`."""
    commands: dict[str, str]
    """Those below it, with their help."""
    flags: dict[str, str]
    """Its options, with their help."""
    valued: tuple[str, ...]
    """Options that something follows."""
    filed: tuple[str, ...]
    """Options that a file follows."""
    takes_files: bool
    """Whether it takes files as arguments."""


def commands_of(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Find all commands, the outer ones first."""
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    flags: dict[str, str] = {}
    valued: list[str] = []
    filed: list[str] = []
    takes_files = False
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            below = dict(action.choices)
            helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
        elif not action.option_strings:
            takes_files |= action.metavar in _FILES
        for flag in action.option_strings:
            flags[flag] = _plain(action.help or "")
            if action.nargs != 0:
                valued.append(flag)
                if action.metavar in _FILES:
                    filed.append(flag)
    named = {name: _plain(helps.get(name, "")) for name in below}
    yield Command(path, named, flags, tuple(valued), tuple(filed), takes_files)
    for name, each in below.items():
        yield from commands_of(each, (*path, name))


def _plain(text: str) -> str:
    """Give the first words of a help, with nothing that a shell would take for its own."""
    return re.sub(r"[^\w ,.:/=<>-]", "", re.split(r"[;(]", text)[0]).strip()


# bash and zsh: cases on the path, in the same words.


def _cases(parser: argparse.ArgumentParser, line: Callable[[Command], str]) -> str:
    return "\n".join(
        f'    "{" ".join(each.path)}")\n{line(each)}\n      ;;' for each in commands_of(parser)
    )


def _words(command: Command) -> str:
    valued = "|".join(command.valued) or "-"
    filed = "|".join(command.filed) or "-"
    return (
        f"      commands='{' '.join(command.commands)}'\n"
        f"      flags='{' '.join(command.flags)}'\n"
        f"      valued='|{valued}|'\n"
        f"      filed='|{filed}|'\n"
        f"      files={int(command.takes_files)}"
    )


_BASH: Final = """\
# bash completion for leasehold

_leasehold_know() {
  case "$1" in
%(cases)s
    *)
      return 1
      ;;
  esac
}

_leasehold() {
  local path='' commands flags valued filed files word previous='' at
  local current="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  _leasehold_know ''
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${COMP_WORDS[at]}"
    if [[ -n $previous && $valued == *"|$previous|"* ]]; then
      previous=''
      continue
    fi
    previous="$word"
    if [[ $word != -* && " $commands " == *" $word "* ]]; then
      path="${path:+$path }$word"
      previous=''
      _leasehold_know "$path"
    fi
  done
  if [[ -n $previous && $valued == *"|$previous|"* ]]; then
    if [[ $filed == *"|$previous|"* ]]; then
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  elif [[ $files == 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}

complete -o filenames -F _leasehold leasehold
"""


def bash(parser: argparse.ArgumentParser) -> str:
    """Write the script for bash."""
    return _BASH % {"cases": _cases(parser, _words)}


_ZSH: Final = """\
#compdef leasehold
# zsh completion for leasehold

_leasehold_know() {
  case "$1" in
%(cases)s
    *)
      return 1
      ;;
  esac
}

_leasehold() {
  local spot='' commands flags valued filed files word previous='' at
  local current="${words[CURRENT]}"
  _leasehold_know ''
  for ((at = 2; at < CURRENT; at++)); do
    word="${words[at]}"
    if [[ -n $previous && $valued == *"|$previous|"* ]]; then
      previous=''
      continue
    fi
    previous="$word"
    if [[ $word != -* && " $commands " == *" $word "* ]]; then
      spot="${spot:+$spot }$word"
      previous=''
      _leasehold_know "$spot"
    fi
  done
  if [[ -n $previous && $valued == *"|$previous|"* ]]; then
    if [[ $filed == *"|$previous|"* ]]; then
      _files
    fi
  elif [[ $current == -* ]]; then
    compadd -- ${=flags}
  elif [[ -n $commands ]]; then
    compadd -- ${=commands}
  elif [[ $files == 1 ]]; then
    _files
  fi
}

compdef _leasehold leasehold
"""


def zsh(parser: argparse.ArgumentParser) -> str:
    """Write the script for zsh."""
    return _ZSH % {"cases": _cases(parser, _words)}


# fish: a line for each word, on the condition that its command was written.

_FISH: Final = """\
# fish completion for leasehold

function __leasehold_at
    set -l words (commandline -opc)
    set -e words[1]
    set -l spot
    for word in $words
        set -l longer $spot $word
        if contains -- "$longer" $__leasehold_commands
            set spot $longer
        end
    end
    test "$spot" = "$argv[1]"
end

set -g __leasehold_commands %(paths)s
complete -c leasehold -f
%(lines)s
"""


def fish(parser: argparse.ArgumentParser) -> str:
    """Write the script for fish."""
    commands = list(commands_of(parser))
    paths = " ".join(f"'{' '.join(each.path)}'" for each in commands if each.path)
    lines = "\n".join(line for each in commands for line in _fish_lines(each))
    return _FISH % {"paths": paths, "lines": lines}


def _fish_lines(command: Command) -> Iterator[str]:
    start = f"complete -c leasehold -n \"__leasehold_at '{' '.join(command.path)}'\""
    for name, text in command.commands.items():
        yield f"{start} -a {name} -d '{text}'"
    for flag, text in command.flags.items():
        kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
        value = " -r -F" if flag in command.filed else " -x" if flag in command.valued else ""
        yield f"{start} {kind}{value} -d '{text}'"
    if command.takes_files:
        yield f"{start} -F"


SCRIPTS: Final[dict[str, Callable[[argparse.ArgumentParser], str]]] = {
    "bash": bash,
    "zsh": zsh,
    "fish": fish,
}
