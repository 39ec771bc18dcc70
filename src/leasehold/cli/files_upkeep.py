"""`leasehold files fsck`, `repair` and `collect`: check, replace and delete replicas."""

import argparse
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from leasehold.cli.connection import finish_with_client
from leasehold.cli.files_views import shown_path
from leasehold.cli.output import count, emit_json, emit_lines, fixed_row, number, size
from leasehold.cli.parser import FAILURE, NOT_THERE, OK, Commands, epilog
from leasehold.cli.settings.error_texts import escaped

if TYPE_CHECKING:
    from leasehold.client.client import Client
    from leasehold.files.fsck import Finding, FsckSummary
    from leasehold.files.repairer import RepairReport

_KIND_COLUMNS: Final = 17
"""The longest kind of a finding."""


def add_fsck(group: Commands) -> None:
    """Add `files fsck`."""
    parser = group.add_parser(
        "fsck",
        help="check files and their replicas",
        description=(
            "Check files at or below a path: list open files, recoveries, and replicas that are "
            "missing, too short or damaged. Nothing is changed."
        ),
        epilog=epilog(
            """
            leasehold files fsck
            leasehold files fsck --deep --json | tail -n 1
            """,
            NOT_THERE,
            notes="The exit code is 1 if there are problems. Open files, and recoveries that have "
            "not failed three times, are not problems.",
        ),
    )
    _add_path(parser)
    parser.add_argument(
        "--deep", action="store_true", help="read all bytes, and compare their checksums"
    )
    finish_with_client(parser, _fsck)


def add_repair(group: Commands) -> None:
    """Add `files repair`."""
    parser = group.add_parser(
        "repair",
        help="copy blocks that have too few replicas",
        description=(
            "Copy blocks at or below a path that have too few replicas, and replace replicas that "
            "are missing or too short. A server with --file-stores does it in the background."
        ),
        epilog=epilog(
            "leasehold files repair",
            NOT_THERE,
            notes="The last line counts the replicas that were added, those with many pieces that "
            "were merged, and missing, short or damaged ones that were dropped. The exit code is "
            "1 if a block could not be repaired completely, or a file is locked because its "
            "recovery has failed.",
        ),
    )
    _add_path(parser)
    parser.add_argument(
        "--verify", action="store_true", help="read all bytes, and replace damaged replicas, too"
    )
    finish_with_client(parser, _repair)


def add_collect(group: Commands) -> None:
    """Add `files collect`."""
    parser = group.add_parser(
        "collect",
        help="delete the data of deleted files",
        description=(
            "Delete data of deleted and replaced files from the stores, when the time of "
            "`stores --keep` has passed. A server with --file-stores does it in the background."
        ),
        epilog=epilog("leasehold files collect"),
    )
    finish_with_client(parser, _collect)


async def _collect(client: "Client", arguments: argparse.Namespace) -> int:
    report = await client.files.collect()
    if arguments.json:
        emit_json(asdict(report))
    else:
        later = size(report.bytes_waiting)
        emit_lines([f"{count(report.objects, 'object')} deleted; {later} to be deleted later"])
    return OK


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", default="", metavar="PATH", help="directory or file (default: the root)"
    )


# Check.


async def _fsck(client: "Client", arguments: argparse.Namespace) -> int:
    problems = 0
    urls = {store.id: store.url for store in (await client.files.config()).stores}
    async with aclosing(client.files.fsck(arguments.path, deep=arguments.deep)) as findings:
        async for finding in findings:
            problems += finding.is_problem
            if arguments.json:
                emit_json(_finding_json(finding))
            else:
                emit_lines([_finding_line(finding, urls)])
    return FAILURE if problems else OK


def _finding_json(finding: "Finding") -> dict[str, Any]:
    found = {name: value for name, value in asdict(finding).items() if value not in ("", None)}
    if finding.elapsed_s is not None:
        found["elapsed_s"] = number(round(finding.elapsed_s, 3))
    if not finding.attempts:
        del found["attempts"]
    return {**found, "kind": finding.kind.value, "is_problem": finding.is_problem}


def _finding_line(finding: "Finding", urls: Mapping[str, str]) -> str:
    if finding.summary is not None:
        return _summary_line(finding.summary)
    where = shown_path(finding.path)
    if finding.block is not None:
        where += f" block {finding.block}"
    url, detail = urls.get(finding.store, finding.store), finding.detail
    if finding.store:
        where += f"{' in ' if where else ''}store {shown_path(url)}"
        detail = detail.removeprefix(f"store {url}: ")
    details = [detail, f"by {finding.holder}" if finding.holder else ""]
    if finding.attempts:
        details.append(count(finding.attempts, "failed attempt"))
    shown = ", ".join(escaped(each) for each in details if each)
    return fixed_row(
        (finding.kind.value, f"{where}: {shown}" if shown else where), (_KIND_COLUMNS,)
    )


def _summary_line(summary: "FsckSummary") -> str:
    directories = "directory" if summary.directories == 1 else "directories"
    return (
        f"{count(summary.files, 'file')}, {summary.directories} {directories}, "
        f"{count(summary.blocks, 'block')}, {size(summary.bytes)}: "
        f"{count(summary.problems, 'problem')}; {size(summary.bytes_waiting)} to be deleted"
    )


# Repair.


async def _repair(client: "Client", arguments: argparse.Namespace) -> int:
    report = await client.files.repair(arguments.path, verify=arguments.verify)
    if arguments.json:
        emit_json(asdict(report))
    else:
        more = [f"and {count(report.more_errors, 'more error')}"] if report.more_errors else []
        emit_lines([*map(escaped, report.errors), *more, _report_line(report)])
    return FAILURE if report.incomplete or report.errors else OK


def _report_line(report: "RepairReport") -> str:
    return (
        f"{count(report.files, 'file')}, {count(report.blocks, 'block')}: "
        f"{count(report.copied, 'replica')} added ({size(report.copied_bytes)}), "
        f"{report.merged} merged, {report.dropped} dropped, "
        f"{count(report.incomplete, 'block')} incomplete"
    )
